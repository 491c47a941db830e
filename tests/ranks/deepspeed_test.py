# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""DeepSpeed files: those of a guide, unchanged, and those in configs/."""
import json
import math
import unittest

from harness import ROOT, ChatWorkspace, Workspace, run_skein
from other_guides_test import fragments

GUIDE = [f"configs/deepspeed/zero{stage}.json" for stage in (1, 2, 3)]


class GuideFiles(unittest.TestCase):
    """Each fixes 32 = 4 x 8 x ranks: one rank."""

    @classmethod
    def setUpClass(cls):
        # Nothing beside the file says what it says.
        cls.work = Workspace(num_blocks=70, max_steps=4, save_strategy="no", report_to="none")
        keys = {key: value for key, value in cls.work.keys.items() if key not in ("learning_rate", "logging_steps")}
        cls.work.write_recipe(keys)
        for name in GUIDE:
            (cls.work / name).parent.mkdir(parents=True, exist_ok=True)
            (cls.work / name).write_text(fragments()[name])

    @classmethod
    def tearDownClass(cls):
        cls.work.__exit__()

    def test_run_on_one_rank(self):
        for stage, name in enumerate(GUIDE, 1):
            with self.subTest(name):
                ended = self.work.run(f"output_dir=out{stage}", "--deepspeed_config", name, "logging_steps=1", ranks=1)
                self.assertIn("effective batch size: 32 = 4 per device x 8 accumulation x 1 rank", ended.stderr)
                self.assertIn("dtype: float16", ended.stderr)
                records = self.work.records(f"out{stage}")
                expected = [0, 0, 3e-5 * math.log(2) / math.log(500), 3e-5 * math.log(3) / math.log(500)]
                for record, rate in zip(records, expected, strict=True):
                    self.assertAlmostEqual(record["learning_rate"], rate, places=15)
                self.assertEqual(records[0]["loss_scale"], 2 ** 16)

    def test_four_ranks_are_told_how_to_close_the_triangle(self):
        for name in GUIDE:
            with self.subTest(name):
                ended = self.work.run("output_dir=refused", "--deepspeed_config", name, ranks=4, code=2)
                self.assertIn("x 4 ranks = 128, but the global batch is 32", ended.stderr)
                self.assertIn('global_batch_size=128 (or "auto" in the DeepSpeed file)', ended.stderr)


class Aio(unittest.TestCase):
    def test_threads_and_requests_are_those_of_the_file(self):
        """Whatever they are, the run learns the same."""
        with Workspace(num_blocks=20, global_batch_size=8, max_steps=4, save_strategy="no") as work:
            zero = {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": str(work.folder)}}
            for name, aio in (("plain", {}), ("aio", {"block_size": 8192, "queue_depth": 2, "thread_count": 3,
                                                      "single_submit": False, "overlap_events": True})):
                (work / f"{name}.json").write_text(json.dumps({"zero_optimization": zero, "aio": aio}))
                ended = run_skein(work.command(f"output_dir={name}", f"deepspeed={name}.json", ranks=1), work.folder,
                                  prefix=["env", "SKEIN_IO_URING=0"])
                threads = aio.get("thread_count", 16)
                self.assertIn(f"(SKEIN_IO_URING=0): {threads} threads read and write what lies on disk", ended.stderr)
            work.run("output_dir=uring", "deepspeed=aio.json", ranks=1)
            for name in ("aio", "uring"):
                self.assertEqual((work / name / "model.safetensors").read_bytes(),
                                 (work / "plain/model.safetensors").read_bytes())


class Shipped(unittest.TestCase):
    TINY = ("device=cpu", "train_from_scratch=true", "template=chatml", "block_size=128", "max_steps=2", "report_to=none",
            "initial_scale_power=8",
            "save_strategy=no", "model_name_or_path=model", "train_file=chat.jsonl", "gradient_accumulation_steps=1")

    def run_config(self, name, *words, files=()):
        with ChatWorkspace() as work:
            work.write_recipe({"extends": str(ROOT / name)})
            ended = work.run("output_dir=out", *self.TINY, *words, ranks=2)
            for file in ("model.safetensors", *files):
                self.assertTrue((work / "out" / file).exists(), file)
            return ended.stderr

    def test_distributed_example(self):
        self.assertIn("DDP training: 2 CPU ranks", self.run_config("configs/config_distributed_example.yaml"))

    def test_deepspeed_example(self):
        self.assertIn("ZeRO-2 training: 2 CPU ranks", self.run_config("configs/config_deepspeed_example.yaml"))

    def test_every_file(self):
        for path in sorted((ROOT / "configs/deepspeed").glob("*.json")):
            with self.subTest(path.name):
                stage = json.loads(path.read_text())["zero_optimization"]["stage"]
                profiles = "profiling" in path.name
                said = self.run_config("configs/config_deepspeed_example.yaml", f"deepspeed={path}", "fp16=true",
                                       *(() if stage == 3 else ("gradient_checkpointing=false",)),
                                       files=("profile-1.txt", "trace-1.rank0.json", "trace-1.rank1.json") * profiles)
                self.assertIn(f"ZeRO-{stage} training: 2 CPU ranks", said)
                self.assertIn("dtype: float16", said)
                self.assertEqual(said.count("profile of update 1"), profiles)


if __name__ == "__main__":
    unittest.main()
