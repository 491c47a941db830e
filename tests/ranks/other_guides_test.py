# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""docs/other_guides.md against the program: every line of its middle columns is run with a tiny model,
and every fragment of guide_fragments.txt is fed to `skein config check`.

A line is run as it stands but for this: four or eight GPUs are two CPU ranks, the other machine is this
one, ports are free ones, `wsl` is left out, and words that make the run tiny are added. Lines that start
another launcher are run by tests/parity.
"""
import os
import re
import shutil
import subprocess
import unittest

from harness import ENVIRONMENT, ROOT, SKEIN, Workspace, finish, free_port, llama, run_skein

PAGE = (ROOT / "docs/other_guides.md").read_text()
FRAGMENTS = (ROOT / "tests/ranks/guide_fragments.txt").read_text()
CONFIGS = ("config.yaml", "config_distributed_example.yaml", "configs/vlm_pretrain.yaml", "run.yaml")
DEEPSPEED_CONFIGS = ("config_deepspeed.yaml", "config_deepspeed_example.yaml")
TINY = ("device=cpu train_from_scratch=true block_size=32 max_steps=2 save_strategy=no report_to=none"
        " output_dir=out")
LAUNCHERS = ("torchrun", "deepspeed", "python")
COMMAND = re.compile(r"^(?:wsl )?(?:env )?(?:[A-Z_]+=\S+ )*(skein|bash scripts/|torchrun|deepspeed|python -m) ?\S")
# `make parity` installs torchrun, and a python that has torch, here.
PATH = f"{SKEIN.parent}:{ROOT / '.deps/parity/bin'}:{os.environ['PATH']}"


# What `--algorithm sft` is given in place of text: rows, and a model with a tokenizer.
CHAT = "train_file=chat.jsonl model_name_or_path=chat template=chatml block_size=128"
# And `--algorithm ppo` and `grpo`.
ASKED = ("train_file=questions.jsonl model_name_or_path=chat template=chatml max_prompt_length=64 max_completion_length=8"
         " num_generations=2")


def cells_of(line):
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def code_spans(cell):
    return re.findall(r"`([^`]+)`", cell)


def commands():
    """(lines that are run at once, what the last column says): one line, or those of two machines."""
    for line in PAGE.splitlines():
        cells = cells_of(line) if line.startswith("| ") else []
        lines = [span for span in code_spans(cells[1]) if COMMAND.match(span)] if len(cells) == 3 else []
        of_two_machines = len(lines) == 2 and re.search(r"node_rank[= ]1\b", lines[1], re.IGNORECASE)
        for group in [lines] if of_two_machines else [[each] for each in lines]:
            yield group, cells[2].rstrip("|").strip()


def fragment_rows():
    """fragment -> what the page says to it"""
    rows = (cells_of(line) for line in PAGE.splitlines() if line.startswith("| `"))
    return {code_spans(cells[0])[0]: cells[1] for cells in rows if len(cells) == 2}


def fragments():
    """name -> content"""
    parts = re.split(r"^--- (.*)\n", FRAGMENTS, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def adapt(line, port):
    line = re.sub(r"^wsl (env )?", "", line)
    line = re.sub(r"((?:nproc.per.node|num_gpus|NPROC_PER_NODE)[= ])[48]\b", r"\g<1>2", line)
    if not line.startswith("deepspeed"):  # whose own flag counts CPU ranks too
        line = line.replace("--num_gpus", "--nproc-per-node")
    line = line.replace("192.168.1.100", "127.0.0.1")
    line = re.sub(r"\b2950[01]\b", str(port), line)
    if re.search(r"skein (data|doctor)", line):
        return line
    if re.search(r"skein gradients|lora_grads", line):  # 8 GPUs are two CPU ranks
        return re.sub(r" sgd 8\b", " sgd 2", line) + " device=cpu template=chatml"
    if "test_multi_gpu_gradient" in line:
        return line
    data = CHAT if "algorithm sft" in line else ASKED if re.search("algorithm (ppo|grpo)", line) else "block_size=32"
    return f"{line} {TINY.replace('block_size=32', data)}"


def launcher_of(line):
    return next((word for word in line.split() if word in LAUNCHERS), None)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(report_to="none")
        (cls.work / "texts").mkdir()
        cls.work.write_text(38, name="texts/a.txt")
        cls.work.write_model(llama(vocab_size=260, max_position_embeddings=128), "chat")
        cls.work.write_tokenizer("chat")
        cls.work.write_chat(40)
        shutil.copy(cls.work / "chat.jsonl", cls.work / "train_file.jsonl")
        cls.work.run("model_name_or_path=chat", CHAT.split()[0], "stage=sft", "template=chatml", "block_size=128", "max_steps=1",
                     "save_strategy=no", "output_dir=model_path")
        cls.write_questions()
        for name, content in fragments().items():
            (cls.work / name).parent.mkdir(parents=True, exist_ok=True)
            (cls.work / name).write_text(content)
        shutil.copy(ROOT / "configs/deepspeed/zero2_with_profiling.json", cls.work / "configs/deepspeed")
        for name in CONFIGS:
            cls.work.write_recipe(cls.work.keys, name)
        for name in DEEPSPEED_CONFIGS:
            deepspeed = {"distributed_strategy": "deepspeed", "deepspeed": str(ROOT / "configs/deepspeed/zero2.json")}
            cls.work.write_recipe(cls.work.keys | deepspeed, name)
        (cls.work / "scripts").symlink_to(ROOT / "scripts")

    @classmethod
    def write_questions(cls):
        """And a model that has been told which answers are right."""
        asked = [[{"role": "user", "content": f"{number} + 1"}] for number in range(20)]
        cls.work.write_rows([{"messages": messages, "answer": i + 1} for i, messages in enumerate(asked)], "questions.jsonl")
        answer = lambda text: [{"role": "assistant", "content": text}]
        cls.work.write_rows([{"prompt": messages, "chosen": answer(f"{i + 1}"), "rejected": answer("?")}
                             for i, messages in enumerate(asked)], "pairs.jsonl")
        cls.work.run("model_name_or_path=chat", "train_file=pairs.jsonl", "stage=rm", "template=chatml", "block_size=128",
                     "max_steps=1", "save_strategy=no", "output_dir=reward_path")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)


class Rows(Page):
    done = set()

    def start(self, line):
        variables = {"PATH": PATH, "SKEIN": str(SKEIN), "MODEL_PATH": "model", "TRAIN_FILE_DIR": "texts",
                     "TRAIN_DATA_DIR": "texts"}
        if "$WORLD_SIZE" in line:
            variables |= {"NPROC_PER_NODE": "2", "WORLD_SIZE": "1", "NODE_RANK": "0",
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        return subprocess.Popen(["bash", "-c", line], cwd=self.work.folder, env=ENVIRONMENT | variables,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)

    def run_lines(self, lines):
        """All at once: one alone, or the lines of two machines."""
        port = free_port()
        shutil.rmtree(self.work / "out", ignore_errors=True)
        return [finish(process) for process in [self.start(adapt(line, port)) for line in lines]]

    def is_new(self, lines):
        """Rows that differ in the number of GPUs alone are the same on two CPU ranks."""
        key = tuple(adapt(line, 0) for line in lines)
        is_new = key not in self.done
        self.done.add(key)
        return is_new

    def expect_success(self, lines):
        ends = self.run_lines(lines)
        for ended in ends:
            # A doctor who finds something says so with 2.
            codes = [0, 2] if "doctor" in lines[0] else [0]
            self.assertIn(ended.returncode, codes, f"{ended.args}\n{ended.stderr}")
        if re.search(r"nproc.per.node[= ][248]|num_gpus=[24]|NPROC_PER_NODE", lines[0]):
            self.assertIn(f"training: {2 * len(lines)} CPU ranks", ends[0].stderr)
        if re.search(r"skein gradients|lora_grads", lines[0]):
            output = re.search(r"output_\w+", lines[0].replace("--output_path", ""))[0]
            self.assertTrue(list((self.work / output).rglob("gradients.pt")), lines)
        elif not re.search(r"skein (data|doctor)|test_multi_gpu_gradient", lines[0]):
            self.assertTrue((self.work / "out/model.safetensors").exists(), lines)

    def expect_error(self, line, error):
        ended, = self.run_lines([line])
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertIn(error, ended.stderr)

    def check(self, lines, then):
        if then.startswith("not yet"):
            if not launcher_of(lines[0]):  # which would be slow, and has exit codes of its own
                self.expect_error(lines[0], code_spans(then)[0])
            return
        self.assertTrue(then.startswith("runs"), then)
        if self.is_new(lines):
            self.expect_success(lines)


class Commands(Rows):
    """Those that need nothing but skein."""


class Launchers(Rows):
    """Those that start another launcher. Run by tests/parity, which installs them."""


def add_tests():
    for number, (lines, then) in enumerate(commands()):
        def test(self, lines=lines, then=then):
            self.check(lines, then)
        name = re.sub(r"\W+", "_", lines[0])[:60].strip("_")
        setattr(Launchers if launcher_of(lines[0]) else Commands, f"test_{number:02}_{name}", test)


add_tests()


class Fragments(Page):
    def test_the_page_lists_every_fragment_and_no_other(self):
        self.assertEqual(sorted(fragment_rows()), sorted(fragments()))

    def test_every_fragment_is_accepted_or_refused_as_the_page_says(self):
        for name, says in fragment_rows().items():
            words = [name] if name.endswith(".yaml") else ["--deepspeed_config", name]
            with self.subTest(name):
                if says.startswith("accepted"):
                    self.assertEqual(run_skein(["config", "check", *words], self.work.folder).stdout, "ok\n")
                else:
                    ended = run_skein(["config", "check", *words], self.work.folder, 2)
                    self.assertIn(code_spans(says)[0], ended.stderr)

    def test_a_global_batch_that_fits_one_rank_only(self):
        shown = re.search(r"```\n(error: the batch sizes do not multiply.*?)```", PAGE, re.DOTALL)[1]
        json = self.work / "zero2.json"
        json.write_text(fragments()["configs/deepspeed/zero2.json"])
        ended = run_skein(["train", "config.yaml", "--deepspeed_config", "zero2.json",
                           "--nproc_per_node", "4", "output_dir=refused"], self.work.folder, 2)
        self.assertEqual(ended.stderr[ended.stderr.index("error: "):], shown)
        self.assertFalse((self.work / "refused").exists())

    def test_images_are_refused(self):
        self.work.write_model({"model_type": "llava"}, name="llava")
        ended = run_skein(["train", "config.yaml", "model_name_or_path=llava", "output_dir=refused"],
                          self.work.folder, 2)
        message = ("llava/config.json: model_type llava is not supported "
                   "(llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3, gpt2)")
        self.assertIn(message, PAGE)
        self.assertIn(message, ended.stderr)


def load_tests(loader, _tests, _pattern):
    return unittest.TestSuite(map(loader.loadTestsFromTestCase, (Commands, Fragments)))


if __name__ == "__main__":
    unittest.main()
