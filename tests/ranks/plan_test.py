# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein plan` and `skein train` know the same rules: what one refuses the other refuses with the same words,
before any rank starts; what plan announces is what train does."""
import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import unittest
from pathlib import Path

import harness
from harness import ChatWorkspace, Workspace, gpt2, run_skein

DRIVER = r"""
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? (device == 0 ? 8 : 7) : 0;  /* an A100 and a V100 */
  return 0;
}
"""


def message(stderr):
    """Without the room on the disk, which others fill meanwhile."""
    return re.sub(r"[\d.]+ \w+ are free", "are free", stderr[stderr.index("error: "):])


def write_safetensors(path, names):
    """One fp32 element each."""
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
                         for i, name in enumerate(names)}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4 * len(names)))


def hold_lease(folder):
    """As a living run does; returns the open file."""
    folder.mkdir()
    lease = open(folder / ".skein-lease", "w")
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    lease.write(json.dumps({"host": "here", "boot": boot, "pid": os.getpid(), "since": "now", "token": "t"}))
    lease.flush()
    fcntl.fcntl(lease, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return lease


class Plan(unittest.TestCase):
    def assert_refused_alike(self, work, words, code, ranks=2):
        planned = run_skein(["plan", *work.command(*words, ranks=ranks)[1:]], work.folder, code)
        self.assertEqual(planned.stdout, "")
        self.assertFalse((work / "out").exists(), "a plan writes nothing")
        trained = work.run(*words, ranks=ranks, code=code)
        self.assertEqual(message(planned.stderr), message(trained.stderr))
        self.assertNotIn("rank 0", trained.stderr)
        self.assertFalse((work / "out/logs").exists(), "a rank was started")
        shutil.rmtree(work / "out", ignore_errors=True)

    def test_plan_and_train_refuse_alike_before_ranks_start(self):
        cases = {
            "positions": ["block_size=65"],
            "best model": ["load_best_model_at_end=true", "eval_strategy=no"],
            "best model without saves": ["load_best_model_at_end=true", "eval_strategy=epoch",
                                         "save_strategy=no"],
            "best model between saves": ["load_best_model_at_end=true", "eval_strategy=steps", "eval_steps=3",
                                         "save_steps=5"],
            "no weights": ["train_from_scratch=false"],
            "other weights": ["train_from_scratch=false", "model_name_or_path=weights"],
            "data": ["train_file=nowhere.txt"],
            "evaluation data": ["eval_strategy=epoch", "eval_file=nowhere.txt"],
            "family": ["model_name_or_path=other"],
            "hub": ["model_name_or_path=openai-community/gpt2"],
            "batch": ["global_batch_size=9"],
            "vocabulary": ["model_name_or_path=small"],
            "token ids": ["train_file=ids.bin"],
            "backend": ["ddp_backend=nccl"],
            "checkpoint": ["resume_from_checkpoint=nope"],
            "steps": ["num_train_epochs=1e18"],
            "no step": ["max_train_samples=3", "dataloader_drop_last=true"],
            "in use": ["output_dir=used"],
            "another program's folder": ["output_dir=theirs"],
        }
        with Workspace(gpt2(), output_dir="out") as work:
            work.write_model({"model_type": "mystery"}, name="other")
            work.write_model(gpt2(vocab_size=200), name="small")
            work.write_model(gpt2(), name="weights")
            write_safetensors(work / "weights/model.safetensors", ["transformer.wte.weight"])
            (work / "ids.bin").write_bytes(struct.pack("<999H", *range(999)))
            (work / "theirs").mkdir()
            (work / "theirs/config.json").write_text("{}")
            with hold_lease(work / "used"):
                for name, words in cases.items():
                    with self.subTest(name):
                        self.assert_refused_alike(work, words, 2)

    def test_broken_data_and_places_are_refused_alike(self):
        cases = {
            "empty": ["train_file=empty.txt"],
            "empty evaluation": ["eval_strategy=epoch", "eval_file=empty.txt"],
            "no text": ["train_file=other.jsonl"],
            "broken UTF-8": ["train_file=latin.txt", "tokenizer_name_or_path=tokenizer", "model_name_or_path=large"],
            "cut tokens": ["train_file=odd.bin"],
            "output_dir is a file": ["output_dir=text.txt"],
            "output_dir is below a file": ["output_dir=text.txt/out"],
            "output_dir cannot be made": ["output_dir=/proc/out"],
            "data_cache_dir is a file": ["data_cache_dir=text.txt"],
            "disk": ["model_name_or_path=huge"],
        }
        with Workspace(gpt2(), output_dir="out") as work:
            work.write_model(gpt2(vocab_size=300), name="large")
            work.write_model(gpt2(n_embd=65536, n_layer=500), name="huge")
            run_skein(["tokenizer", "train", "--input", "text.txt", "--out", "tokenizer", "--vocab-size", "270"],
                      work.folder)
            (work / "empty.txt").write_text("")
            (work / "other.jsonl").write_text('{"text": "a"}\n{"content": "b"}\n')
            (work / "latin.txt").write_bytes(b"one line\ncaf\xe9\n")
            (work / "odd.bin").write_bytes(b"123")
            for name, words in cases.items():
                with self.subTest(name):
                    self.assert_refused_alike(work, words, 4)

    def test_rows_are_refused_alike(self):
        cases = {
            "too long": (4, ["excess_length_strategy=error", "cutoff_len=20"]),
            "no target is left": (4, ["cutoff_len=8"]),
            "no end is trained on": (4, ["template=", "chat_template=endless.jinja"]),
            "no step": (2, ["dataloader_drop_last=true", "global_batch_size=64"]),
            "no step of packs": (2, ["dataloader_drop_last=true", "global_batch_size=32", "packing=true"]),
            "all held out": (2, ["val_size=40"]),
            "an end that nobody names": (2, ["template=alpaca", "model_name_or_path=nameless"]),
            "a template whose name is not UTF-8": (2, ["model_name_or_path=odd"]),
            "the same beside text": (2, ["model_name_or_path=odd", "stage=pt", "train_file=text.txt", "template="]),
            "its own template's": (4, ["template=", "model_name_or_path=nameless"]),
            "empty": (4, ["train_file=empty.jsonl"]),
            "evaluation rows": (4, ["eval_strategy=epoch", "eval_file=empty.jsonl"]),
        }
        with ChatWorkspace(output_dir="out") as work:
            (work / "empty.jsonl").write_text("\n")
            (work / "endless.jinja").write_text("{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ '\n' }}{% endfor %}")
            shutil.copytree(work / "model", work / "odd")
            (work / "odd/additional_chat_templates").mkdir()
            Path(os.fsdecode(os.fsencode(work / "odd/additional_chat_templates") + b"/rag\xff.jinja")).write_text("x")
            shutil.copytree(work / "model", work / "nameless")
            alpaca = run_skein(["template", "show", "alpaca"], work.folder).stdout
            (work / "nameless/chat_template.jinja").write_text(alpaca)
            (work / "nameless/tokenizer_config.json").write_text("{}")
            for name, (code, words) in cases.items():
                with self.subTest(name):
                    self.assert_refused_alike(work, words, code, ranks=1)

    def test_steps_of_rows_are_those_of_the_run(self):
        with ChatWorkspace(output_dir="out", global_batch_size=4, block_size=96, num_train_epochs=1, num_rows=37) as work:
            for words in ((), ("packing=true",), ("packing=true", "dataloader_drop_last=true"), ("val_size=9",)):
                with self.subTest(words):
                    planned = json.loads(run_skein(["plan", "c.yaml", *words, "--json"], work.folder).stdout)
                    work.run("--fresh", *words)
                    self.assertEqual(planned["steps"]["total"], work.records("out")[-1]["step"])

    def test_the_files_that_are_told_are_those_that_are_left(self):
        # A model that was made before, with all that a tokenizer may have.
        with ChatWorkspace(max_steps=2, save_steps=1, global_batch_size=4, report_to="all") as work:
            work.run("output_dir=base", "report_to=none", "save_strategy=no")
            (work / "base/special_tokens_map.json").write_text('{"eos_token": "<|im_end|>"}')
            (work / "base/additional_chat_templates").mkdir()
            (work / "base/additional_chat_templates/rag.jinja").write_text("{{ messages }}")
            words = ["model_name_or_path=base", "train_from_scratch=false", "output_dir=out"]
            cases = (["template="], ["template=", "max_shard_size=20KB"], ["template=", "finetuning_type=lora"],
                     ["save_strategy=no"], ["template=", "stage=pt", "block_size=32", "train_file=text.txt"])
            for more in cases:
                with self.subTest(more):
                    shutil.rmtree(work / "out", ignore_errors=True)
                    planned = json.loads(run_skein(["plan", "c.yaml", *words, *more, "--json"], work.folder).stdout)
                    work.run(*words, *more, ranks=2)
                    left = [str(path.relative_to(work.folder)) for path in (work / "out").rglob("*")
                            if path.is_symlink() or not path.is_dir()]
                    told = [re.compile(re.sub(r"STEP|K(?=\[\.\]log)", "[0-9]+", name.replace(".", "[.]")).replace("…", ".*")
                                       + (".*" if name.endswith("/") else "")) for name in planned["files"]]
                    self.assertEqual([name for name in left if not any(one.fullmatch(name) for one in told)], [])
                    self.assertEqual([one.pattern for one in told if not any(map(one.fullmatch, left))], [])

    def test_fresh_takes_the_templates_of_the_run_before(self):
        with ChatWorkspace(max_steps=1, save_strategy="no", global_batch_size=4) as work:
            work.run("output_dir=base")
            named = "additional_chat_templates/rag.jinja"
            (work / "base" / named).parent.mkdir()
            (work / "base" / named).write_text("{{ messages }}")
            words = ["model_name_or_path=base", "train_from_scratch=false", "output_dir=out", "template="]
            work.run(*words)
            self.assertTrue((work / "out" / named).exists())
            (work / "out/additional_chat_templates/mine.jinja").write_text("kept")
            shutil.rmtree(work / "base/additional_chat_templates")
            work.run(*words, "--fresh")
            left = [path.name for path in (work / "out/additional_chat_templates").iterdir()]
            self.assertEqual(left, ["mine.jinja"])

    def test_fresh_takes_the_model_of_the_run_before(self):
        """What the new model does not have would count beside it."""
        with ChatWorkspace(max_steps=1, save_strategy="no", global_batch_size=4, output_dir="out") as work:
            work.run("max_shard_size=20KB")
            names = lambda: {path.name for path in (work / "out").iterdir()}
            old = names()
            self.assertLessEqual({"chat_template.jinja", "generation_config.json", "tokenizer.json",
                                  "model.safetensors.index.json"}, old)
            (work / "out/notes.txt").write_text("mine")
            for path in (work / "model").glob("tokenizer*"):
                path.unlink()
            work.run("--fresh", "stage=pt", "train_file=text.txt", "template=", "block_size=32")
            new = names()
            self.assertFalse({name for name in new if "token" in name or "chat" in name or "generation" in name}, new)
            self.assertEqual([name for name in new if name.startswith("model")], ["model.safetensors"])
            self.assertIn("notes.txt", new)

    def test_what_is_in_output_dir_is_seen(self):
        with Workspace(num_blocks=20, per_device_train_batch_size=4, save_steps=1, output_dir="run") as work:
            work.run("max_steps=2", ranks=2)
            plan = lambda *words: run_skein(["plan", "c.yaml", "--nproc-per-node", "2", *words], work.folder).stdout
            self.assertIn("nothing left to do: all 2 steps are done", plan("max_steps=2"))
            self.assertIn("continues run/checkpoint-2 at step 2 of 5", plan("max_steps=5"))
            self.assertEqual(json.loads(plan("max_steps=5", "--json"))["continues"],
                             {"checkpoint": "run/checkpoint-2", "step": 2, "nothing_left": False})
            self.assertNotIn("continues", plan("max_steps=5", "fresh=true"))
            work.write_model(gpt2(), name="gpt2")
            cases = {"started run": (["resume_from_checkpoint=false"], 2, ["--fresh"]),
                     "ranks": ([], 1, ["--nproc-per-node 2", "global_batch_size=8"]),
                     "batch": (["per_device_train_batch_size=2"], 2, ["global_batch_size=8"]),
                     "rows": (["block_size=16"], 2, ["block_size=32"]),
                     "rows by another name": (["cutoff_len=16"], 2, ["a cutoff_len of 32, this", "Give cutoff_len=32"]),
                     "width": (["dtype=bfloat16"], 2, ["was saved with dtype=float32, this start has dtype=bfloat16",
                                                       "Give dtype=float32, another output_dir"]),
                     "model": (["model_name_or_path=gpt2"], 2, ["model_type is llama there and gpt2 here. Give"])}
            for name, (words, ranks, parts) in cases.items():
                with self.subTest(name):
                    self.assert_refused_alike(work, ["max_steps=5", *words], 2, ranks)
                    refused = work.run("max_steps=5", *words, ranks=ranks, code=2)
                    for part in parts:
                        self.assertIn(part, refused.stderr)
            # What plan would have to read all data for, train finds before its ranks start.
            work.write_text(20, seed=2)
            self.assertIn("training data of digest", work.run("max_steps=5", ranks=2, code=2).stderr)

    def test_a_run_goes_on_in_weights_of_the_same_width(self):
        with Workspace(num_blocks=20, save_steps=1, output_dir="run", dtype="bfloat16", global_batch_size=4) as work:
            work.run("max_steps=1", ranks=2)
            self.assert_refused_alike(work, ["max_steps=2", "dtype=float32"], 2)
            refused = work.run("max_steps=2", "dtype=float32", ranks=2, code=2).stderr
            self.assertIn("was saved with dtype=bfloat16, this start has dtype=float32", refused)
            self.assertIn("continuing run/checkpoint-1", work.run("max_steps=2", "dtype=float16", ranks=2).stderr)
            # Adapters have 32 bits in any case; modules that train whole have not.
            work.run("output_dir=base", "save_strategy=no", "max_steps=1")
            for more, code in (([], 0), (["modules_to_save=lm_head"], 2)):
                words = ["model_name_or_path=base", "train_from_scratch=false", "finetuning_type=lora", "output_dir=tuned",
                         *more, "--fresh"]
                work.run(*words, "max_steps=1")
                ended = work.run(*words[:-1], "max_steps=2", "dtype=float32", code=code)
                self.assertEqual("dtype=bfloat16 (or float16)" in ended.stderr, code == 2, ended.stderr)

    def test_a_finished_run_without_checkpoints_is_not_trained_again(self):
        with Workspace(num_blocks=20, save_strategy="no", max_steps=2, output_dir="run") as work:
            work.run(ranks=2)
            before = (work / "run/model.safetensors").stat().st_mtime_ns
            planned = run_skein(["plan", "c.yaml", "--nproc-per-node", "2"], work.folder)
            self.assertIn("nothing left to do: all 2 steps are done", planned.stdout)
            self.assertIn("nothing left to do: all 2 steps are done", work.run(ranks=2).stderr)
            self.assertEqual((work / "run/model.safetensors").stat().st_mtime_ns, before)
            self.assertEqual(len(work.records("run")), 2)
            self.assertNotIn("nothing left", work.run("max_steps=3", ranks=2).stderr)
            self.assertNotIn("nothing left", work.run("max_steps=3", "--fresh", ranks=2).stderr)

    def test_tokens_of_json_lines_are_those_of_their_text(self):
        with Workspace() as work:
            lines = [json.dumps({"url": "https://example.org/" * 5, "text": "中文" * 4}) for _ in range(50)]
            (work / "a.jsonl").write_text("\n".join(lines))
            plan = run_skein(["plan", "c.yaml", "train_file=a.jsonl", "--json"], work.folder).stdout
            data = json.loads(plan)["data"]
            self.assertEqual((data["tokens"], data["exact"]), (50 * 25, True))

    def test_all_of_a_run_can_be_warm_up(self):
        with Workspace(max_steps=4, output_dir="out", warmup_ratio=1.0) as work:
            plan = json.loads(run_skein(["plan", "c.yaml", "--json"], work.folder).stdout)
            self.assertEqual(plan["steps"]["warmup"], 4)
            work.run(ranks=1)
            rates = [record["learning_rate"] for record in work.records("out")]
            self.assertEqual([round(rate * 4e3) for rate in rates], [0, 1, 2, 3])

    def test_gpus_without_bfloat16_are_seen(self):
        """The driver is asked: here one of ours, with two GPUs."""
        with Workspace(device="auto") as work:
            (work / "driver.c").write_text(DRIVER)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"], cwd=work.folder,
                           check=True)
            environment = harness.ENVIRONMENT | {"LD_LIBRARY_PATH": str(work.folder)}
            ended = subprocess.run([harness.SKEIN, "plan", "c.yaml", "--json"], cwd=work.folder, text=True,
                                   env=environment, capture_output=True, check=True)
            hardware = json.loads(ended.stdout)["hardware"]
            self.assertEqual((hardware["gpus"], hardware["gpus_have_bfloat16"]), (2, False))


def large_llama(layers):
    """252M parameters a layer: 5 are 1.3B."""
    return harness.llama(hidden_size=4096, intermediate_size=15104, num_attention_heads=32, num_key_value_heads=32,
                         num_hidden_layers=layers, max_position_embeddings=4096)


class PlanOfGpusThatAreNotThere(unittest.TestCase):
    """`--gpu` plans for any world on any machine."""

    def plan(self, work, *words):
        ended = run_skein(["plan", "c.yaml", *words, "--json"], work.folder)
        return json.loads(ended.stdout), ended.stderr

    def test_bytes_by_component_follow_the_world(self):
        with Workspace(large_llama(5), device="auto", block_size=1024) as work:
            plan, warnings = self.plan(work, "--gpu", "H100", "--nnodes", "2", "--nproc-per-node", "4")
            self.assertEqual(warnings, "")
            self.assertEqual((plan["launch"]["ranks"], plan["launch"]["device"]), (8, "cuda"))
            self.assertEqual(plan["resolved"]["distributed_strategy"], "zero2")
            self.assertIn("parameters train (1B to 7B: zero2)", plan["reasons"][0])
            parameters = plan["model"]["parameters"]
            ddp, zero1, zero2, zero3 = plan["model"]["memory_per_rank"]
            self.assertAlmostEqual(ddp["weights"] / parameters, 2, delta=0.01)
            self.assertAlmostEqual(ddp["states"] / parameters, 12, delta=0.01)
            self.assertAlmostEqual(zero1["states"] / parameters, 12 / 8, delta=0.01)
            self.assertAlmostEqual(zero2["gradients"] / parameters, 2 / 8, delta=0.01)
            self.assertAlmostEqual(zero3["weights"] / parameters, 2 / 8, delta=0.01)
            for row in (ddp, zero1, zero2, zero3):
                self.assertGreater(min(row["activations_kept"], row["head"], row["margin"]), 0)
                self.assertEqual(row["needed"], row["peak_estimate"] + row["margin"])
            text = run_skein(["plan", "c.yaml", "--gpu", "h100", "--nproc-per-node", "4"], work.folder).stdout
            self.assertIn("as if: 4 x H100", text)
            self.assertIn("4 x 4 at 10 Gbit/s", text)

    def test_gpus_without_bfloat16_compute_in_float16_and_the_plan_says_why(self):
        with Workspace(device="auto") as work:
            plan, warnings = self.plan(work, "--gpu", "T4", "--nproc-per-node", "2")
            self.assertEqual(plan["resolved"]["dtype"], "float16")
            self.assertIn("dtype: auto is float16", warnings)
            self.assertIn("a GPU of this run has no bfloat16 arithmetic", warnings)

    def test_faster_links_are_worth_it(self):
        with Workspace(large_llama(5), device="auto", block_size=1024) as work:
            step = lambda gbit: self.plan(work, "--gpu", "A100", "--nnodes", "2", "--nproc-per-node", "4",
                                          "--link-gbit", gbit, "per_device_train_batch_size=1")[0]["prediction"]["step"]
            slow, fast = step("10"), step("400")
            self.assertEqual(slow["compute_seconds"], fast["compute_seconds"])
            self.assertLess(slow["efficiency"], fast["efficiency"])
            self.assertAlmostEqual(slow["step_seconds"], slow["compute_seconds"] + slow["exposed_seconds"])

    def test_a_measured_step_predicts_ranks_on_cpus(self):
        with Workspace() as work:
            plan, _ = self.plan(work, "--compute-ms", "20", "--nproc-per-node", "2")
            self.assertAlmostEqual(plan["prediction"]["step"]["compute_seconds"], 0.02)
            self.assertEqual(len(plan["prediction"]["scaling"]), 7)
            self.assertIsNone(self.plan(work, "--nproc-per-node", "2")[0]["prediction"])

    def test_the_change_that_is_told_makes_the_run_fit(self):
        cases = {"micro-batch": (3, "A100-40", ["distributed_strategy=zero1", "per_device_train_batch_size=64"]),
                 "checkpointing": (3, "A100-40", ["distributed_strategy=zero1", "per_device_train_batch_size=1",
                                                  "block_size=131072"]),
                 "stage": (6, "L4", ["distributed_strategy=ddp", "per_device_train_batch_size=1",
                                     "gradient_checkpointing=true"]),
                 "together": (6, "L4", ["distributed_strategy=ddp", "per_device_train_batch_size=64"])}
        for name, (layers, gpu, words) in cases.items():
            with self.subTest(name), Workspace(large_llama(layers), device="auto", block_size=4096) as work:
                words = ["--gpu", gpu, "--nproc-per-node", "8", *words]
                plan, warnings = self.plan(work, *words)
                self.assertFalse(plan["model"]["fits"])
                change = re.search(r"and the GPU has [\d.]+ GiB: (.*) makes? it fit$", warnings, re.MULTILINE)
                self.assertIsNotNone(change, warnings)
                keys = {"micro-batch": "per_device_train_batch_size", "checkpointing": "gradient_checkpointing",
                        "stage": "distributed_strategy", "together": "per_device_train_batch_size"}
                self.assertTrue(change[1].startswith(keys[name]), change[1])
                given = [word for word in words if "=" not in word or word.split("=")[0] not in change[1]]
                changed, warnings = self.plan(work, *given, *change[1].split())
                self.assertTrue(changed["model"]["fits"], warnings)
                self.assertEqual(changed["batch"]["global"]["value"], plan["batch"]["global"]["value"])

    def test_this_machines_disks_and_memory_are_no_refusal(self):
        with Workspace(large_llama(5), device="auto", block_size=1024) as work:
            words = ["offload_optimizer=nvme", "nvme_path=/nowhere", "distributed_strategy=zero2"]
            plan, warnings = self.plan(work, "--gpu", "RTX4090", *words)
            self.assertIn("nvme_path: /nowhere is not a folder", warnings)
            self.assertGreater(plan["model"]["memory_per_rank"][2]["offloaded_disk"], 0)
            words = ["offload_optimizer=cpu", "distributed_strategy=zero2", "gradient_checkpointing=true",
                     "per_device_train_batch_size=1"]
            plan, warnings = self.plan(work, "--gpu", "3090", "--host-memory", "1", *words)
            self.assertRegex(warnings, r"and it has 1\.0 GiB: \S+")
            self.assertNotIn("this machine's:", warnings)
            plan, warnings = self.plan(work, "--gpu", "3090", "--host-memory", "512", *words)
            self.assertEqual(warnings, "")
            self.assertTrue(plan["model"]["fits"])
            plan, warnings = self.plan(work, "--gpu", "3090", "--gpu-memory", "2", "--host-memory", "512", *words)
            self.assertIn("and the GPU has 2.0 GiB", warnings)
            text = run_skein(["plan", "c.yaml", "--gpu", "3090"], work.folder).stdout
            self.assertIn("(this machine's: --host-memory GiB)", text)

    def test_of_states_on_a_disk_little_is_held_while_they_are_saved(self):
        with Workspace(large_llama(5), device="auto", block_size=1024) as work:
            held = lambda *words: run_skein(["plan", "c.yaml", "--gpu", "H100", "--host-memory", "512",
                                             "distributed_strategy=zero2", *words], work.folder).stdout
            line = re.search(r"beside it (\S+) (GiB) of host memory while", held())
            nvme = re.search(r"beside it (\S+) (GiB) of host memory while",
                             held("offload_optimizer=nvme", f"nvme_path={work.folder}"))
            self.assertLess(float(nvme[1]), float(line[1]) / 3)  # the weights, and 128 MiB of states

    def test_what_cannot_be_planned_is_refused(self):
        cases = {"--gpu MI300 is not in the table: one of GB200, B200": ["--gpu", "MI300"],
                 "--gpu plans for GPUs, but device is cpu": ["--gpu", "T4", "device=cpu"],
                 "--mfu must be above 0 and at most 1, not 2": ["--gpu", "T4", "--mfu", "2"],
                 "--link-gbit must be above 0": ["--gpu", "T4", "--link-gbit", "0"],
                 "did you mean 'A10' or 'A100'?": ["--gpu", "A10G"],
                 "--mfu is a share of a GPU's peak: give --gpu NAME too": ["--mfu", "0.4"],
                 "--gpu-memory is that of a GPU which is not here": ["--gpu-memory", "24"],
                 "--host-memory is that of a machine which is not here": ["--host-memory", "24"],
                 "--host-memory must be above 0": ["--gpu", "T4", "--host-memory", "0"]}
        with Workspace(device="auto") as work:
            for message, words in cases.items():
                self.assertIn(message, run_skein(["plan", "c.yaml", *words], work.folder, 2).stderr)


class Autos(unittest.TestCase):
    def test_plan_and_train_decide_alike(self):
        with Workspace(output_dir="out", max_steps=1, gradient_accumulation_steps=2) as work:
            words = ["per_device_train_batch_size=auto"]
            plan = json.loads(run_skein(["plan", *work.command(*words, ranks=2)[1:], "--json"], work.folder).stdout)
            self.assertEqual(plan["resolved"]["distributed_strategy"], "ddp")
            self.assertEqual(plan["batch"]["per_device"]["value"], 16)  # 8 x 2 rows of a rank at once
            self.assertEqual(plan["batch"]["global"]["value"], 32)
            trained = work.run(*words, ranks=2)
            self.assertEqual(len(plan["reasons"]), 2)
            for reason in plan["reasons"]:
                self.assertIn(reason, trained.stderr)
            saved = (work / "out/config.yaml").read_text()
            self.assertRegex(saved, r"(?m)^distributed_strategy: ddp$")
            self.assertRegex(saved, r"(?m)^per_device_train_batch_size: 16$")
            self.assertRegex(saved, r"(?m)^auto_find_batch_size: false$")
            # The same words go on with what they began.
            self.assertIn("nothing left to do", work.run(*words, ranks=2).stderr)


if __name__ == "__main__":
    unittest.main()
