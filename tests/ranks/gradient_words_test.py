# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""What `skein gradients …` says: which keys and flags it reads, why it does what it does, what to type instead."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from harness import ENVIRONMENT, ROOT, SKEIN, ChatWorkspace, finish, run_skein, start_skein


class Words(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = ChatWorkspace(num_rows=12, per_device_train_batch_size=2)
        cls.work.run("output_dir=base", "max_steps=1", "save_strategy=no")
        cls.work.run("output_dir=warm", "model_name_or_path=base", "train_from_scratch=false", "finetuning_type=lora",
                     "lora_rank=4", "max_steps=2", "save_steps=1")
        for name, more in (("train", ["--gradient_type", "sgd"]), ("dev", ["--validation", "--max_samples", "4"])):
            cls.collect(name, *more)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    @classmethod
    def collect(cls, output, *more, code=0, model="warm/checkpoint-2", rows=("--train_file", "chat.jsonl")):
        return run_skein(["gradients", "collect", *rows, "--template", "chatml", *(["--model", model] if model else []),
                          "--output_path", output, "device=cpu",
                          *([] if "--gradient_projection_dimension" in more else ["--gradient_projection_dimension", "64"]),
                          *more], cls.work.folder, code)

    @classmethod
    def gradients(cls, *words, code=0):
        return run_skein(["gradients", *words], cls.work.folder, code)

    def facts(self, output):
        return json.loads((self.work / output / "collection.json").read_text())

    def test_a_stop_is_seen_inside_a_batch(self):
        """All rows are one batch of many columns: without a look inside it would end before anybody asks."""
        process = start_skein(["gradients", "collect", "--train_file", "chat.jsonl", "--template", "chatml", "--model", "base",
                               "--output_path", "long", "device=cpu", "--gradient_projection_dimension", "65536",
                               "--parameters", "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj",
                               "--batch_tokens", "100000"], self.work.folder)
        deadline = time.monotonic() + 60
        while not (self.work / "long/collection.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(finish(process).returncode, 75)
        self.assertEqual(list((self.work / "long").glob("block-*")), [])

    def test_keys_of_a_configuration(self):
        self.work.write_recipe({"model_name_or_path": "base", "train_file": "chat.jsonl", "template": "chatml", "stage": "sft",
                                "cutoff_len": 40, "max_samples": 7, "seed": 9, "learning_rate": 0.1, "num_train_epochs": 2,
                                "output_dir": "elsewhere", "device": "cpu"}, "less.yaml")
        adapter = json.loads((self.work / "warm/checkpoint-2/adapter_config.json").read_text())
        shutil.copytree(self.work / "warm/checkpoint-2", self.work / "moved", ignore=shutil.ignore_patterns("manifest*"))
        (self.work / "moved/adapter_config.json").write_text(json.dumps(adapter | {"base_model_name_or_path": "gone"}))
        words = ["gradients", "collect", "less.yaml", "--model", "moved", "--gradient_projection_dimension", "64"]
        ended = run_skein([*words, "--output_path", "keys"], self.work.folder)
        facts = self.facts("keys")
        self.assertEqual([facts[key] for key in ("max_length", "num_samples", "max_samples", "seed")], [40, 7, 7, 9])
        self.assertEqual(ended.stderr.count("no effect on gradients"), 1)
        self.assertIn("no effect on gradients: learning_rate, num_train_epochs, output_dir\n", ended.stderr)
        # Flags count more.
        run_skein([*words, "--output_path", "flags", "--max_length", "50", "--max_samples", "3"], self.work.folder)
        self.assertEqual([self.facts("flags")[key] for key in ("max_length", "num_samples")], [50, 3])
        self.assertNotIn("no effect", self.collect("plain").stderr)

    def test_why_it_is_sgd(self):
        ended = self.collect("of-run", model="warm")
        self.assertIn("gradient_type is sgd: warm is the folder of a run", ended.stderr)
        self.assertIn("give --model warm/checkpoint-2", ended.stderr)
        shutil.copytree(self.work / "warm/checkpoint-2", self.work / "their run/checkpoint-7",
                        ignore=shutil.ignore_patterns("manifest*", "optimizer*"))
        (self.work / "their run/checkpoint-7/optimizer.pt").write_bytes(b"pickle")
        ended = self.collect("of-pickle", model="their run/checkpoint-7")
        self.assertIn("gradient_type is sgd: optimizer.pt is a pickle", ended.stderr)
        self.assertIn("`scripts/hf_moments.py 'their run/checkpoint-7'`", ended.stderr)
        ended = self.collect("of-pickle", "--gradient_type", "adam", model="their run/checkpoint-7", code=2)
        self.assertIn("`scripts/hf_moments.py 'their run/checkpoint-7'`", ended.stderr)
        self.assertIn("gradient_type is sgd: the rows are for validation", self.collect("dev", "--validation", "--max_samples",
                                                                                       "4").stderr)

    def test_rows_do_not_go_into_a_model(self):
        for output in ("warm/checkpoint-2/grads", "warm/checkpoint-2", "base/grads"):
            with self.subTest(output):
                ended = self.collect(output, code=2)
                self.assertIn(f"--output_path {output} lies in ", ended.stderr)
                self.assertIn("give a folder outside of it", ended.stderr)
        self.assertFalse((self.work / "warm/checkpoint-2/grads").exists())

    def test_score_says_what_is_compared(self):
        ended = self.gradients("score", "--train", "train", "--validation", "dev", "--out", "s1")
        self.assertIn("train rows: sgd gradients in float32; validation rows: sgd gradients in float32", ended.stderr)
        self.assertNotIn("warning", ended.stderr)
        self.collect("adam-dev", "--max_samples", "4", "dtype=bfloat16")
        ended = self.gradients("score", "--train", "train", "--validation", "adam-dev", "--out", "s2")
        self.assertIn("validation rows: adam gradients in bfloat16", ended.stderr)
        self.assertIn("validation rows are adam gradients, where LESS takes sgd", ended.stderr)
        self.assertIn("rows were computed in bfloat16 and float32", ended.stderr)
        # Once more into the same folder.
        ended = self.gradients("score", "--train", "train", "--validation", "dev", "--out", "s1")
        self.assertIn("written over: s1/train_influence_score.safetensors, s1/train_influence_score.pt", ended.stderr)

    def test_dimensions_that_differ(self):
        self.collect("dev-short", "--validation", "--max_samples", "4", "--gradient_projection_dimension", "32")
        ended = self.gradients("score", "--train", "train", "--validation", "dev-short", "--out", "s3")
        self.assertIn("train rows have 64 columns, validation rows 32: the first 32 of both are compared", ended.stderr)

    def test_flags_of_less(self):
        for verb, words, says in [
                ("collect", ["--dims", "8192"], "--gradient_projection_dimension N"),
                ("collect", ["--Proj_Dim=8192"], "--gradient_projection_dimension N"),
                ("collect", ["--data_dir", "d"], "--train_file F"),
                ("collect", ["--ckpts", "1"], "--model DIR/checkpoint-N"),
                ("score", ["--gradient_path", "d"], "--train DIR…"),
                ("score", ["--gradient-path=d"], "--train DIR…"),
                ("score", ["--train_file_names", "d"], "--train DIR…"),
                ("score", ["--CKPTS", "1"], "--checkpoints DIR…"),
                ("score", ["--checkpoint_weights", "1"], "--weights X…"),
                ("score", ["--validation_gradient_path", "d"], "--validation DIR…"),
                ("score", ["--target_task_names", "bbh"], "--groups FILE|KEY"),
                ("score", ["--output_path", "d"], "--out DIR"),
                ("select", ["--train_file_names", "d"], "--train-files F…"),
                ("select", ["--percentage", "0.05"], "--top 5%"),
                ("select", ["--max_samples", "5"], "--top N"),
                ("select", ["--output_path", "d"], "--out DIR"),
                ("merge", ["--output_path", "d"], "skein gradients merge DIR")]:
            with self.subTest(verb=verb, words=words):
                ended = self.gradients(verb, *words, code=2)
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
                self.assertIn(f"skein gradients {verb} has no --", ended.stderr)
                self.assertIn(says, ended.stderr)
        # What is suggested is a flag of the verb: --max-samples is select's only in LESS.
        self.assertNotIn("--max-samples", self.gradients("select", "--max-sample", "5", code=2).stderr)
        self.assertIn("did you mean '--block", self.collect("never", "--block_sample", "5", code=2).stderr)

    def test_several_values(self):
        ended = self.collect("never", rows=("--train_file", "chat.jsonl", "more rows.jsonl"), code=2)
        self.assertIn("--train_file chat.jsonl,'more rows.jsonl'", ended.stderr)
        self.assertIn("--train_file_dir DIR", ended.stderr)
        ended = self.gradients("select", "--top", "5%", "6%", "--scores", "s", code=2)
        self.assertIn("'6%' belongs to no flag: --scores and --train-files take several words", ended.stderr)
        ended = self.collect("never", model="warm/checkpoint-3", code=2)
        self.assertIn("'warm/checkpoint-3' does not exist: warm has checkpoint-1, checkpoint-2", ended.stderr)
        ended = self.gradients("score", "--train", "train", "--validation", "dev", "--checkpoints", "warm/checkpoint-9", code=2)
        self.assertIn("warm has checkpoint-1, checkpoint-2", ended.stderr)
        self.gradients("score", "--train", "train,train", "--validation", "dev,dev", "--weights", "0.25,0.75", "--out", "s4")

    def test_what_select_takes(self):
        self.gradients("score", "--train", "train", "--validation", "dev", "--out", "s5")
        for words in (["chat.jsonl"], ["ch?t.jsonl"], ["only-rows"]):
            (self.work / "only-rows").mkdir(exist_ok=True)
            shutil.copy(self.work / "chat.jsonl", self.work / "only-rows/rows.jsonl")
            with self.subTest(words):
                self.gradients("select", "--scores", "s5", "--train-files", *words, "--top", "25%", "--out", "chosen")
                self.assertEqual(len((self.work / "chosen/top_p0.25.jsonl").read_text().splitlines()), 3)
        ended = self.gradients("select", "--scores", "s5", "--train-files", "chat.jsonl", "--top", "3", "--out", "chosen")
        self.assertIn("written over: chosen/sorted.csv, chosen/scores.svg", ended.stderr)
        ended = self.gradients("select", "--scores", "s5", "--train-files", "chat.jsonl", "--top", "0.05", code=2)
        self.assertIn("type --top 5%", ended.stderr)
        ended = self.gradients("select", "--scores", "warm", "--train-files", "chat.jsonl", "--top", "3", code=2)
        self.assertIn("holds no _influence_score.safetensors", ended.stderr)

    def test_facts_in_words(self):
        (self.work / "fewer.jsonl").write_text("".join((self.work / "chat.jsonl").read_text().splitlines(True)[:5]))
        (self.work / "other.jsonl").write_text((self.work / "chat.jsonl").read_text().replace("!", "?"))
        for more, says in [
                ({"model": "warm/checkpoint-1"}, "the model is another"),
                ({"rows": ("--train_file", "other.jsonl")}, "12 rows in 1 file against as many with other bytes")]:
            with self.subTest(says):
                ended = self.collect("train", "--gradient_type", "sgd", code=2, **more)
                self.assertIn(f"train holds another collection of gradients: ", ended.stderr)
                self.assertIn(says, ended.stderr)
                self.assertNotIn("digest", ended.stderr)
        self.collect("by-seed", "seed=3", "--validation")
        ended = self.gradients("score", "--train", "train", "--validation", "by-seed", code=2)
        self.assertIn("the seed of the projection is 0 against 3", ended.stderr)

    def test_another_encoding(self):
        (self.work / "gbk.jsonl").write_bytes('{"prompt": "你好", "completion": "再见"}\n'.encode("gbk"))
        ended = self.collect("never", rows=("--train_file", "gbk.jsonl"), code=4)
        self.assertIn("gbk.jsonl:1: invalid UTF-8", ended.stderr)
        self.assertIn("iconv -f GB18030 -t UTF-8", ended.stderr)

    def test_more_ranks_than_blocks(self):
        ended = self.collect("few", "--nproc-per-node", "3")
        self.assertIn("there is 1 block for 3 ranks, of which 2 have nothing to do: --block_samples 4 makes more", ended.stderr)

    def test_help_of_a_verb(self):
        for verb, has, lacks in (("collect", "--gradient_type", "--weights"), ("score", "--weights", "--gradient_type"),
                                 ("select", "--top", "--weights"), ("merge", "--parts", "--top")):
            ended = self.gradients(verb, "--help")
            self.assertIn(f"skein gradients {verb}", ended.stdout)
            self.assertIn(has, ended.stdout)
            self.assertNotIn(lacks, ended.stdout)
        ended = self.gradients("colect", code=2)
        self.assertIn("did you mean 'collect'", ended.stderr)
        self.assertEqual(ended.stderr.count("\n"), 1)

    def test_wrappers_want_numbers(self):
        words = ["chat.jsonl", "warm/checkpoint-2", "never", "64", "sgd"]
        for script, more, says in [
                ("get_train_lora_grads.sh", ["device=cpu"], "GPU_ID is 'device=cpu'"),
                ("get_train_lora_grads_multi_gpu.sh", ["device=cpu"], "GPUS is 'device=cpu'"),
                ("get_train_lora_grads_multi_gpu.sh", ["2", "template=chatml"], "PORT is 'template=chatml'"),
                ("get_train_lora_grads_torchrun.sh", ["two"], "GPUS is 'two'")]:
            with self.subTest(script):
                ended = subprocess.run([ROOT / "scripts" / script, *words, *more], cwd=self.work.folder, text=True,
                                       env=ENVIRONMENT | {"SKEIN_BUILD": str(SKEIN.parents[1])}, stdin=subprocess.DEVNULL,
                                       capture_output=True, check=False)
                self.assertEqual(ended.returncode, 2)
                self.assertIn(says, ended.stderr)
                self.assertEqual(ended.stderr.count("\n"), 1)

    def test_moments_script_fails_in_one_line(self):
        """Stand-ins for the packages it needs."""
        stubs = self.work / "stubs"
        (stubs / "safetensors").mkdir(parents=True)
        (stubs / "torch.py").write_text("def load(*_, **__):\n    raise RuntimeError('no pickle\\nat all')\n")
        (stubs / "safetensors/__init__.py").write_text("")
        (stubs / "safetensors/torch.py").write_text("save_file = None\n")
        (self.work / "trainer/checkpoint-3").mkdir(parents=True)
        (self.work / "trainer/checkpoint-3/optimizer.pt").write_text("?")
        for folder, says in (("trainer", "name one of its checkpoints (checkpoint-3)"), ("base", "has no optimizer.pt"),
                             ("trainer/checkpoint-3", "optimizer.pt: no pickle")):
            ended = subprocess.run([sys.executable, ROOT / "scripts/hf_moments.py", folder], cwd=self.work.folder, text=True,
                                   env=ENVIRONMENT | {"PYTHONPATH": str(stubs)}, capture_output=True, check=False)
            self.assertEqual(ended.returncode, 1)
            self.assertIn(says, ended.stderr)
            self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)

    def test_moments_script_pairs_by_name_or_says_that_it_cannot(self):
        """With stand-ins: a tensor is its shape, a model the parameters that train, and what is saved is printed."""
        stubs = self.work / "paired"
        (stubs / "safetensors").mkdir(parents=True)
        (stubs / "checkpoint").mkdir()
        (stubs / "checkpoint/optimizer.pt").write_text("")
        (stubs / "torch.py").write_text("""
import json, os
class Tensor:
    def __init__(self, shape, value): self.shape, self.value = tuple(shape), value
    def float(self): return self
    contiguous = float
def load(*_, **__):
    moments = lambda shape, value: {"exp_avg": Tensor(shape, value), "exp_avg_sq": Tensor(shape, -value)}
    said = json.loads(os.environ["OPTIMIZER"])
    return {"state": {int(key) if key.isdigit() else key: moments(*one) for key, one in said.items()},
            "param_groups": [{"params": list(range(len(said)))}]}
""")
        (stubs / "safetensors/__init__.py").write_text("")
        (stubs / "safetensors/torch.py").write_text(
            "def save_file(tensors, path, metadata): print({name: one.value for name, one in tensors.items()})\n")
        # The Trainer's order is: a, c (which decay), b.
        script = (f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import hf_moments\n"
                  "hf_moments.read_order = lambda *_: [('a.lora_A.default.weight', (2, 3)), ('c.weight', (3, 2)), ('b.weight', (3,))]\n"
                  "sys.argv = ['hf_moments.py', 'checkpoint']\nhf_moments.main()\n")

        def paired(code=0, **optimizer):
            ended = subprocess.run([sys.executable, "-c", script], cwd=stubs, text=True, capture_output=True, check=False,
                                   env=ENVIRONMENT | {"PYTHONPATH": str(stubs), "OPTIMIZER": json.dumps(optimizer)})
            self.assertEqual(ended.returncode, code, ended.stderr)
            return ended.stdout + ended.stderr

        numbers = {"0": ((2, 3), 1), "1": ((3, 2), 2), "2": ((3,), 3)}
        said = paired(**numbers)
        self.assertIn("{'a.lora_A.weight.exp_avg': 1, 'a.lora_A.weight.exp_avg_sq': -1, 'c.weight.exp_avg': 2,", said)
        self.assertIn("moments of 3 parameters, paired by the Trainer's order: the optimizer has numbers and no names", said)
        # Names in another order than any.
        names = {"b.weight": ((3,), 3), "c.weight": ((3, 2), 2), "a.lora_A.weight": ((2, 3), 1)}
        said = paired(**names)
        self.assertIn("'c.weight.exp_avg': 2, 'c.weight.exp_avg_sq': -2, 'b.weight.exp_avg': 3", said)
        self.assertIn("paired by their names", said)
        self.assertNotIn("order", said)
        for optimizer, says in (
                ({"x.weight": ((2, 3), 1), "y.weight": ((3, 2), 2), "z.weight": ((3,), 3)}, "no Adam moments of a.lora_A.default.weight"),
                ({"0": ((2, 3), 1), "c.weight": ((3, 2), 2), "b.weight": ((3,), 3)}, "no Adam moments of a.lora_A.default.weight"),
                (names | {"c.weight": ((2, 3), 2)}, "c.weight is (3, 2): another adapter or base?"),
                (numbers | {"1": ((3,), 3), "2": ((3, 2), 2)}, "numbers parameters in another order than the Trainer"),
                ({"0": ((2, 3), 1)}, "the optimizer has 1 parameters, the model trains 3")):
            with self.subTest(says):
                said = paired(code=1, **optimizer)
                self.assertIn(says, said)
                self.assertEqual(said.count("\n"), 1, said)

    def test_who_holds_the_folder(self):
        process = start_skein(["gradients", "collect", "--train_file", "chat.jsonl", "--template", "chatml", "--model", "base",
                               "--output_path", "held", "device=cpu", "--gradient_projection_dimension", "65536",
                               "--parameters", "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"], self.work.folder)
        deadline = time.monotonic() + 60
        while not (self.work / "held/collection.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            ended = self.collect("held", code=2)
            self.assertIn("--output_path", ended.stderr)
        finally:
            os.kill(process.pid, signal.SIGTERM)
            finish(process)


if __name__ == "__main__":
    unittest.main()
