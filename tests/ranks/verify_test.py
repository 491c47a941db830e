# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein verify-strategy`: the same steps under every strategy, and what it says of them."""
import array
import itertools
import json
import math
import unittest

from harness import ChatWorkspace, Workspace, gpt2, llama, read_safetensors, relative, run_skein, sample

STRATEGIES = ("ddp", "zero1", "zero2", "zero3")
STEPS = 4


def floats(path):
    """{name: values} of a file of float32 tensors."""
    return {name: array.array("f", values) for name, (_, _, values) in read_safetensors(path).items()}


def norm(values):
    return math.sqrt(math.fsum(value * value for value in values))


class Verify(unittest.TestCase):
    def verify(self, work, *words, ranks=2, code=0):
        ended = run_skein(["verify-strategy", *work.command(*words, ranks=ranks)[1:], "--json",
                           f"--steps={STEPS}"], work.folder, code)
        report = json.loads(ended.stdout)
        self.assertEqual(report["within"], code == 0)
        self.assertEqual(report["ranks"], ranks)
        return report, ended

    def variants(self, report):
        return {variant["name"]: variant for variant in report["variants"]}

    def check_report(self, report):
        """It is whole: all strategies with and without offload, every pair of them once."""
        names = list(self.variants(report))
        self.assertEqual(len(names), len(report["variants"]))
        for strategy in STRATEGIES:
            self.assertIn(strategy, names)
            self.assertIn(f"{strategy} optimizer=cpu", names)
        self.assertIn("zero3 optimizer=cpu param=cpu", names)
        self.assertEqual([tuple(pair["variants"]) for pair in report["pairs"]],
                         list(itertools.combinations(names, 2)))
        for variant in report["variants"]:
            self.assertEqual(len(variant["losses"]), STEPS)
            self.assertEqual(len(variant["grad_norms"]), STEPS)
        for pair in report["pairs"]:
            self.assertTrue(pair["within"])
            self.assertTrue(pair["allowed"]["why"])

    def assert_bit_equal(self, variants):
        for key in ("digest", "losses", "grad_norms", "parameters"):
            self.assertEqual(len({json.dumps(variant[key]) for variant in variants}), 1, key)

    def test_without_accumulation_all_are_bit_equal_and_the_run_itself(self):
        with Workspace(num_blocks=41, per_device_train_batch_size=4, max_steps=STEPS, warmup_steps=2, weight_decay=0.1,
                       output_dir="out") as work:
            report, ended = self.verify(work)
            self.assertFalse((work / "out").exists())
            self.check_report(report)
            self.assert_bit_equal(report["variants"])
            for pair in report["pairs"]:
                self.assertEqual((pair["loss"], pair["grad_norm"], pair["parameters"]), (0, 0, 0))
                self.assertEqual(pair["allowed"]["parameters"], 0)
            self.assertIn("zero3 optimizer=cpu param=cpu: 4 steps", ended.stderr)
            work.run(ranks=2)
            records = work.records("out")
            first = report["variants"][0]
            self.assertEqual(first["losses"], [record["loss"] for record in records])
            self.assertEqual(first["grad_norms"], [record["grad_norm"] for record in records])
            # Over a run that is there: from its first weights again, and it stays as it is.
            before = sorted((path, path.stat().st_mtime_ns) for path in (work / "out").rglob("*"))
            again, _ = self.verify(work, "--strategies=zero1,zero3")
            self.assertEqual(sorted((path, path.stat().st_mtime_ns) for path in (work / "out").rglob("*")), before)
            self.assertEqual({name.split()[0] for name in self.variants(again)}, {"zero1", "zero3"})
            self.assert_bit_equal([first, *again["variants"]])

    def test_accumulation_leaves_rounding_between_two_pairs(self):
        with Workspace(gpt2(), num_blocks=41, per_device_train_batch_size=2, gradient_accumulation_steps=3) as work:
            for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-10), ("bfloat16", 2e-2), ("float16", 1e-2)):
                with self.subTest(dtype):
                    report, _ = self.verify(work, f"dtype={dtype}")
                    self.check_report(report)
                    late = [v for n, v in self.variants(report).items() if n.startswith(("ddp", "zero1"))]
                    early = [v for n, v in self.variants(report).items() if n.startswith(("zero2", "zero3"))]
                    self.assert_bit_equal(late)
                    self.assert_bit_equal(early)
                    across = [pair for pair in report["pairs"] if pair["variants"] == ["ddp", "zero2"]][0]
                    self.assertEqual(across["allowed"]["loss"], tolerance)
                    print(f"{dtype}: loss {across['loss']:.1e}, norm {across['grad_norm']:.1e}, "
                          f"parameters {across['parameters']:.1e}")
                    if dtype in ("bfloat16", "float16"):
                        continue  # the few terms of 16 bits add up exactly in 32, in any order
                    self.assertNotEqual(late[0]["digest"], early[0]["digest"])
                    self.assertGreater(across["parameters"], 0)
                    self.assertIn(across["tensor"], late[0]["parameters"])

    def test_states_and_shards_on_a_disk_are_bit_equal_too(self):
        with Workspace(num_blocks=41, per_device_train_batch_size=4, weight_decay=0.1) as work:
            report, _ = self.verify(work, "nvme_path=.")
            self.check_report(report)
            names = list(self.variants(report))
            self.assertEqual(len(names), 14)
            self.assertIn("zero3 optimizer=nvme param=nvme", names)
            self.assert_bit_equal(report["variants"])
            self.assertEqual([path.name for path in work.folder.iterdir() if "skein" in path.name], [])

    def test_narrow_states_are_within_what_is_printed(self):
        with Workspace(llama(), num_blocks=41, per_device_train_batch_size=2, gradient_accumulation_steps=3) as work:
            for words in (["optim=adamw_8bit"], ["pure_bf16=true"]):
                with self.subTest(words):
                    report, _ = self.verify(work, *words)
                    self.check_report(report)
                    across = [pair for pair in report["pairs"] if pair["variants"] == ["ddp", "zero2"]][0]
                    self.assertEqual(across["allowed"]["parameters"], 5e-2)

    def test_what_differs_too_much_is_exit_code_1(self):
        with Workspace(num_blocks=41, per_device_train_batch_size=2, gradient_accumulation_steps=3) as work:
            report, ended = self.verify(work, "--tolerance=0", "--strategies=ddp,zero2", code=1)
            beyond = [pair["variants"] for pair in report["pairs"] if not pair["within"]]
            self.assertEqual(len(beyond), 4)  # each with offload and without
            self.assertIn(["ddp", "zero2"], beyond)
            self.assertEqual(ended.stderr.count("error: internal: "), 1, ended.stderr)
            self.assertIn("ddp and zero2 differ by", ended.stderr)
            self.assertIn("--tolerance", ended.stderr)
            shown = run_skein(["verify-strategy", *work.command("--tolerance=0", "--strategies=ddp,zero2", ranks=2)[1:]],
                              work.folder, 1).stdout
            self.assertEqual(shown.count("TOO FAR"), 4)
            self.assertIn("4 variants, 6 pairs, 4 beyond the tolerance", shown)

    def assert_same_numbers(self, report, run, one):
        """Every variant is bit-equal to `run`, the variant `one` on another number of ranks up to rounding."""
        self.check_report(report)
        self.assertIn("zero3 optimizer=nvme param=nvme", self.variants(report))
        self.assert_bit_equal(report["variants"])
        first = report["variants"][0]
        self.assertEqual(first["losses"], [record["loss"] for record in run])
        for key in ("losses", "grad_norms"):
            for found, expected in zip(first[key], one[key], strict=True):
                self.assertLess(relative(found, expected), 1e-5)

    def assert_same_weights(self, found, expected):
        """Tensor by tensor; small ones are compared with a thousandth of all."""
        self.assertEqual(list(found), list(expected))
        whole = math.hypot(*map(norm, expected.values()))
        for name, values in expected.items():
            apart = norm(a - b for a, b in zip(found[name], values, strict=True))
            self.assertLess(apart, 1e-4 * max(norm(values), whole / 1000), name)

    def check_world_sizes(self, work, file, all_ranks, *words):
        """At one number of ranks all variants end bit-equal, so the weights of a run speak for each of them."""
        alone, _ = self.verify(work, "nvme_path=.", *words, ranks=1)
        self.assert_bit_equal(alone["variants"])
        for ranks in (1, *all_ranks):
            work.run(f"output_dir=run{ranks}", f"max_steps={STEPS}", "distributed_strategy=ddp", *words, ranks=ranks)
        for ranks in all_ranks:
            with self.subTest(ranks=ranks):
                report, _ = self.verify(work, "nvme_path=.", *words, ranks=ranks)
                self.assert_same_numbers(report, work.records(f"run{ranks}"), alone["variants"][0])
                self.assert_same_weights(floats(work / f"run{ranks}" / file), floats(work / "run1" / file))

    def test_over_world_sizes_only_rounding_differs(self):
        with Workspace(llama(), num_blocks=41, global_batch_size=12, weight_decay=0.1, max_steps=STEPS) as work:
            self.check_world_sizes(work, "model.safetensors", (2, 3, 4))

    def test_adapters_over_world_sizes(self):
        with Workspace(llama(), num_blocks=41, global_batch_size=12, max_steps=STEPS) as work:
            work.run("output_dir=base", "max_steps=2", "save_strategy=no")
            self.check_world_sizes(work, "adapter_model.safetensors", sample((3, 4), 1), "model_name_or_path=base",
                                   "train_from_scratch=false", "finetuning_type=lora", "lora_rank=4")

    def test_adapters_and_rows(self):
        with ChatWorkspace(per_device_train_batch_size=2, packing=True) as work:
            work.run("output_dir=base", "max_steps=2", "save_strategy=no")
            work.keys |= {"model_name_or_path": "base", "train_from_scratch": False, "finetuning_type": "lora",
                          "lora_rank": 4, "lora_dropout": 0.1}
            work.write_recipe(work.keys)
            report, _ = self.verify(work)
            self.check_report(report)
            self.assert_bit_equal(report["variants"])
            self.assertTrue(all("lora_" in name for name in report["variants"][0]["parameters"]))

    def test_the_table(self):
        with Workspace(num_blocks=41, per_device_train_batch_size=4, output_dir="out") as work:
            shown = run_skein(["verify-strategy", *work.command("--steps", "7", ranks=2)[1:]], work.folder).stdout
            self.assertIn("7 steps on 2 ranks (cpu), float32", shown)
            self.assertIn("effective batch size: 8 = 4 per device x 1 accumulation x 2 ranks", shown)
            for part in ("loss of steps 1 to 7", "gradient norm of steps 1 to 7", "…",
                         "allowed: bit-equal (CPU, no accumulation)", "9 variants, 36 pairs, 0 beyond the tolerance"):
                self.assertIn(part, shown)
            self.assertNotIn("TOO FAR", shown)

    def test_no_more_steps_than_the_run_has(self):
        with Workspace(num_blocks=41, per_device_train_batch_size=4, max_steps=2) as work:
            ended = run_skein(["verify-strategy", *work.command("--strategies=ddp", "--json", ranks=1)[1:]], work.folder)
            self.assertEqual(json.loads(ended.stdout)["steps"], 2)


class BadWords(unittest.TestCase):
    def test_refusals(self):
        with Workspace(per_device_train_batch_size=4) as work:
            for words, says in [(["--steps=0"], ["steps", "1"]),
                                (["--steps=many"], ["steps", "many"]),
                                (["--strategies=zero4"], ["--strategies", "'zero4'", "zero3"]),
                                (["--strategies=auto"], ["--strategies", "'auto'"]),
                                (["--tolerance=-1"], ["--tolerance", "-1"]),
                                (["--tolerence=1"], ["did you mean '--tolerance'"]),
                                (["max_stpes=1"], ["did you mean 'max_steps'"]),
                                (["model_name_or_path="], ["skein verify-strategy needs model_name_or_path=FOLDER"]),
                                (["train_file="], ["skein verify-strategy needs train_file=FILE"]),
                                (["model_name_or_path=nowhere"], ["nowhere"]),
                                (["gradient_accumulation_steps=3", "global_batch_size=10"], ["global_batch_size"])]:
                with self.subTest(words):
                    ended = run_skein(["verify-strategy", "c.yaml", *words], work.folder, code=2)
                    self.assertEqual(ended.stdout, "")
                    self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                    for part in says:
                        self.assertIn(part, ended.stderr)


if __name__ == "__main__":
    unittest.main()
