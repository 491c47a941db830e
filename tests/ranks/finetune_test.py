# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""finetuning_type lora and freeze, as whole runs: what trains and what does not, splits over ranks, stages and
accumulation, files, continuations, and what is refused."""
import json
import os
import shutil
import struct
import unittest

from harness import ChatWorkspace, Workspace, finish, gpt2, llama, read_safetensors, relative, run_skein, sample, wait_until_gone
from harness import children, kill, write_safetensors

STEPS = 6
LORA = {"finetuning_type": "lora", "lora_rank": 4, "lora_target": ["q_proj", "down_proj"]}
FOUR_BITS = LORA | {"quantization_bit": 4}
FREEZE = {"finetuning_type": "freeze", "freeze_trainable_layers": 1, "freeze_extra_modules": ["lm_head"]}
PREFIX = "base_model.model."


class Tuned(Workspace):
    """A workspace whose model folder `base` holds the weights of a few steps."""

    def __init__(self, model=None, **keys):
        super().__init__(model, num_blocks=20, global_batch_size=8, lr_scheduler_type="linear", weight_decay=0.1,
                         max_steps=STEPS, save_steps=2)
        self.make_base("base")
        self.keys |= {"model_name_or_path": "base", "train_from_scratch": False, "learning_rate": 1e-2} | keys
        self.write_recipe(self.keys)

    def make_base(self, name, seed=1):
        self.run(f"output_dir={name}", "max_steps=2", f"seed={seed}", "save_strategy=no", "model_name_or_path=model",
                 "train_from_scratch=true", "finetuning_type=full")
        return self / name


def rounded(data):
    """fp32 as bfloat16, to the nearest, ties to even."""
    bits = struct.unpack(f"<{len(data) // 4}I", data)
    return struct.pack(f"<{len(bits)}H", *((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in bits))


def numbers(records):
    return [(r["step"], r["loss"], r["grad_norm"], r["learning_rate"]) for r in records]


class WhatTrains(unittest.TestCase):
    def test_frozen_weights_never_change_and_have_no_state(self):
        with Tuned(**FREEZE) as work:
            ended = work.run("output_dir=out", ranks=2)
            before, after = (read_safetensors(work / name / "model.safetensors") for name in ("base", "out"))
            self.assertEqual(set(before), set(after))
            trains = lambda name: name.startswith("model.layers.1.") or name.startswith("lm_head.")
            for name, tensor in before.items():
                self.assertEqual(after[name] != tensor, trains(name), name)
            states = read_safetensors(work / f"out/checkpoint-{STEPS}/optimizer.safetensors")
            self.assertEqual({name.rpartition(".")[0] for name in states}, set(filter(trains, before)))
            count = sum(num_elements(before[name][1]) for name in before if trains(name))
            self.assertIn(f"trainable: {count:,} (", ended.stderr)

    def test_an_adapter_is_what_peft_calls_one(self):
        with Tuned(**LORA) as work:
            base = (work / "base/model.safetensors").read_bytes()
            work.run("output_dir=out", ranks=2)
            self.assertEqual((work / "base/model.safetensors").read_bytes(), base)
            for folder in ("out", f"out/checkpoint-{STEPS}"):
                names = {path.name for path in (work / folder).iterdir()}
                self.assertLessEqual({"adapter_model.safetensors", "adapter_config.json"}, names)
                self.assertFalse({"model.safetensors", "config.json"} & names, names)
                tensors = read_safetensors(work / folder / "adapter_model.safetensors")
                self.assertEqual(len(tensors), 2 * 2 * 2)
                self.assertEqual({tensor[0] for tensor in tensors.values()}, {"F32"})
                self.assertIn(PREFIX + "model.layers.1.mlp.down_proj.lora_A.weight", tensors)
            config = json.loads((work / "out/adapter_config.json").read_text())
            self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 4, 8))
            self.assertEqual(config["base_model_name_or_path"], str((work / "base").resolve()))
            states = read_safetensors(work / f"out/checkpoint-{STEPS}/optimizer.safetensors")
            self.assertTrue(all(".lora_" in name for name in states), list(states)[:3])

    def test_adapters_are_fp32_beside_bfloat16(self):
        with Tuned(**LORA, dtype="bfloat16") as work:
            work.run("output_dir=out", ranks=2)
            tensors = read_safetensors(work / "out/adapter_model.safetensors")
            self.assertEqual({tensor[0] for tensor in tensors.values()}, {"F32"})
            states = read_safetensors(work / f"out/checkpoint-{STEPS}/optimizer.safetensors")
            self.assertFalse([name for name in states if name.endswith(".master")])

    def test_plan_and_run_say_the_same(self):
        with Tuned(**LORA) as work:
            plan = json.loads(run_skein(["plan", "c.yaml", "output_dir=out", "--json"], work.folder).stdout)
            trainable, whole = plan["model"]["trainable"], plan["model"]["parameters"]
            shapes = (32 + 32, 88 + 32)  # q_proj and down_proj, in + out
            self.assertEqual(trainable, 2 * 4 * sum(shapes))
            text = run_skein(["plan", "c.yaml", "output_dir=out"], work.folder).stdout
            self.assertIn(f"trainable {trainable:,} (", text)
            ended = work.run("output_dir=out")
            self.assertIn(f"parameters: {whole:,}  trainable: {trainable:,} (", ended.stderr)
            checkpoint = work / f"out/checkpoint-{STEPS}"
            self.assertEqual(plan["disk"]["checkpoint_model_bytes"],
                             (checkpoint / "adapter_model.safetensors").stat().st_size)
            self.assertEqual(plan["disk"]["checkpoint_optimizer_bytes"],
                             (checkpoint / "optimizer.safetensors").stat().st_size)


def num_elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


# (ranks, per device, accumulation, strategy). The first is what the others are held to.
SPLITS = [(1, 8, 1, "ddp"), (1, 2, 4, "ddp"), (2, 4, 1, "zero3"), (2, 2, 2, "zero1"), (2, 2, 2, "zero2"),
          (2, 1, 4, "zero3"), (4, 2, 1, "zero2"), (4, 1, 2, "ddp")]
KINDS = {"lora": LORA | {"lora_dropout": 0.1}, "lora_saved": LORA | {"modules_to_save": ["lm_head"]},
         "loraplus": LORA | {"loraplus_lr_ratio": 8}, "dora": LORA | {"use_dora": True}, "freeze": FREEZE}
KINDS_IN_FOUR_BITS = {"lora": FOUR_BITS | {"lora_dropout": 0.1}, "single": FOUR_BITS | {"double_quantization": False},
                      "dora": FOUR_BITS | {"use_dora": True},
                      "recomputed": FOUR_BITS | {"gradient_checkpointing": True, "modules_to_save": ["up_proj"]}}


class Splits(unittest.TestCase):
    def check(self, keys, dtype, tolerance):
        with Tuned(dtype=dtype, **keys) as work:
            expected = self.train(work, SPLITS[0])
            for split in sample(SPLITS[1:], 3):
                with self.subTest(split=split):
                    found = self.train(work, split)
                    self.assertEqual(len(found), len(expected))
                    for a, b in zip(found, expected):
                        for key in ("loss", "grad_norm"):
                            self.assertLess(relative(a[key], b[key]), tolerance, f"{key} of step {a['step']}")

    def train(self, work, split):
        ranks, per_device, accumulation, strategy = split
        work.run(f"per_device_train_batch_size={per_device}", f"gradient_accumulation_steps={accumulation}",
                 "output_dir=out", "--fresh", f"distributed_strategy={strategy}", ranks=ranks)
        return work.records("out")

    def test_float32(self):
        for kind in sample(KINDS, 2):
            with self.subTest(kind=kind):
                self.check(KINDS[kind], "float32", 1e-5)

    def test_float64(self):
        for kind in sample(KINDS, 2):
            with self.subTest(kind=kind):
                self.check(KINDS[kind], "float64", 1e-10)

    def test_four_bits(self):
        for kind in sample(KINDS_IN_FOUR_BITS, 2):
            with self.subTest(kind=kind):
                self.check(KINDS_IN_FOUR_BITS[kind], "float32", 1e-5)

    def test_stages_of_four_bits_are_bit_equal(self):
        """Without accumulation, as all stages are: each gathers the same bytes."""
        with Tuned(global_batch_size=4, per_device_train_batch_size=2, **FOUR_BITS) as work:
            for strategy in ("ddp", "zero1", "zero2", "zero3"):
                work.run(f"distributed_strategy={strategy}", f"output_dir={strategy}", ranks=2)
            for strategy in ("zero1", "zero2", "zero3"):
                self.assertEqual(numbers(work.records(strategy)), numbers(work.records("ddp")), strategy)
                name = "adapter_model.safetensors"
                self.assertEqual((work / strategy / name).read_bytes(), (work / "ddp" / name).read_bytes(), strategy)


class Continued(unittest.TestCase):
    def kill_and_compare(self, work, weights):
        """All processes at once, somewhere after the first checkpoints and long before the last."""
        steps = "max_steps=40"
        work.run("output_dir=whole", steps, ranks=2)
        process = work.start("output_dir=cut", steps, ranks=2)
        work.wait_for_step(process, "cut", 10)  # a save begins when the one before has ended
        ranks = children(process.pid)
        kill([process.pid, *ranks])
        wait_until_gone(ranks)
        finish(process)
        ended = work.run("output_dir=cut", steps, ranks=2)
        self.assertIn("continuing cut/checkpoint-", ended.stderr)
        for name in (f"checkpoint-40/{weights}", "checkpoint-40/optimizer.safetensors", weights):
            self.assertEqual((work / "cut" / name).read_bytes(), (work / "whole" / name).read_bytes(), name)
        self.assertEqual(numbers(work.records("cut")), numbers(work.records("whole")))

    def test_killed_and_resumed_lora_is_byte_equal(self):
        with Tuned(gpt2(), finetuning_type="lora", lora_rank=4, lora_target=["c_attn", "c_fc"], lora_dropout=0.1,
                   distributed_strategy="zero2") as work:
            self.kill_and_compare(work, "adapter_model.safetensors")

    def test_killed_and_resumed_lora_on_packed_rows_is_byte_equal(self):
        with ChatWorkspace(packing=True, save_steps=2, global_batch_size=4, **LORA, lora_dropout=0.1) as work:
            work.run("output_dir=base", "max_steps=2", "save_strategy=no", "finetuning_type=full")
            work.write_recipe(work.keys | {"model_name_or_path": "base", "train_from_scratch": False})
            self.kill_and_compare(work, "adapter_model.safetensors")

    def test_killed_and_resumed_freeze_is_byte_equal(self):
        with Tuned(distributed_strategy="zero3", **FREEZE) as work:
            self.kill_and_compare(work, "model.safetensors")

    def test_killed_and_resumed_lora_in_four_bits_is_byte_equal(self):
        with Tuned(distributed_strategy="zero3", lora_dropout=0.1, **FOUR_BITS) as work:
            self.kill_and_compare(work, "adapter_model.safetensors")

    def test_any_stage_and_number_of_ranks_goes_on(self):
        with Tuned(**LORA) as work:
            work.run("output_dir=whole", "distributed_strategy=zero3", ranks=2)
            expected = work.records("whole")
            for strategy, ranks in (("ddp", 1), ("zero1", 4), ("zero2", 2)):
                with self.subTest(strategy=strategy, ranks=ranks):
                    shutil.rmtree(work / "moved", ignore_errors=True)
                    work.run("output_dir=moved", f"distributed_strategy={strategy}", f"global_batch_size=8",
                             f"resume_from_checkpoint=whole/checkpoint-4", ranks=ranks)
                    found = work.records("moved")
                    self.assertEqual(len(found), STEPS)
                    for a, b in zip(found, expected):
                        self.assertLess(relative(a["loss"], b["loss"]), 1e-5)

    def test_adapter_name_or_path_goes_on_with_an_adapter(self):
        with Tuned(**LORA) as work:
            work.run("output_dir=first")
            first = work.records("first")
            ended = work.run("output_dir=second", "adapter_name_or_path=first", "lora_rank=2")
            self.assertIn("lora_rank differ from what first/adapter_config.json says, which counts", ended.stderr)
            second = work.records("second")
            self.assertLess(second[0]["loss"], first[0]["loss"])
            tensors = read_safetensors(work / "second/adapter_model.safetensors")
            self.assertEqual({tensor[1][0] for name, tensor in tensors.items() if ".lora_A." in name}, {4})

    def test_an_adapter_that_holds_a_tied_embedding_twice(self):
        """As PEFT stores it where a vocabulary was resized, or with save_embedding_layers."""
        names = ["model.embed_tokens.weight", "lm_head.weight"]
        with Tuned(llama(tie_word_embeddings=True), **LORA) as work:
            work.run("output_dir=first", "max_steps=2")
            work.run("output_dir=plain", "adapter_name_or_path=first", "max_steps=2", ranks=2)
            path = work / "first/adapter_model.safetensors"
            adapter, base = read_safetensors(path), read_safetensors(work / "base/model.safetensors")
            dtype, shape, data = base[names[0]]
            add = lambda tensors: write_safetensors(path, adapter | {PREFIX + name: tensor for name, tensor in tensors.items()})
            generate = ["generate", "first", "--prompt", "abc", "--max-new-tokens", "4", "--device", "cpu"]

            add({name: base[names[0]] for name in names})
            work.run("output_dir=second", "adapter_name_or_path=first", "max_steps=2", ranks=2)
            self.assertEqual(numbers(work.records("second")), numbers(work.records("plain")))
            run_skein(generate, work.folder)

            changed = data[:-1] + bytes([data[-1] ^ 1])
            add({names[0]: base[names[0]], names[1]: (dtype, shape, changed)})
            refusals = [run_skein(generate, work.folder, code=2).stderr]
            refusals.append(work.run("output_dir=third", "adapter_name_or_path=first", ranks=2, code=2).stderr)
            for said in refusals:
                self.assertIn("with other values, and in this model they are one tensor: `skein merge first", said)
            run_skein(["merge", "first", "--out", "two"], work.folder)

            grown = (dtype, [shape[0] + 1, shape[1]], data + bytes(4 * shape[1]))
            add({name: grown for name in names})
            refusals = [run_skein(generate, work.folder, code=2).stderr]
            refusals.append(work.run("output_dir=third", "adapter_name_or_path=first", code=2).stderr)
            for said in refusals:
                self.assertIn("of another shape (2)", said)
                self.assertIn("`skein merge first --out DIR` makes a model of it", said)
            run_skein(["merge", "first", "--out", "grown"], work.folder)

    def test_an_adapter_goes_on_with_its_own_template(self):
        """As generate, chat, eval and merge take it: the base's counts where the adapter has none."""
        with ChatWorkspace(block_size=256, global_batch_size=4, max_steps=2, save_strategy="no") as work:
            work.run("output_dir=base")
            work.write_recipe(work.keys | {"model_name_or_path": "base", "train_from_scratch": False, "template": ""} | LORA)
            work.run("output_dir=first", "template=alpaca")
            more = ["adapter_name_or_path=first"]
            ended = work.run("output_dir=second", *more)
            self.assertIn("note: tokenizer_name_or_path is first", ended.stderr)
            work.run("output_dir=told", "template=alpaca", *more)
            self.assertEqual(numbers(work.records("second")), numbers(work.records("told")))
            first, second, base = ((work / name / "chat_template.jinja").read_text() for name in ("first", "second", "base"))
            self.assertEqual(second, first)
            self.assertNotEqual(second, base)
            inspect = lambda *words: run_skein(["data", "inspect", "c.yaml", *words], work.folder)
            self.assertIn("### Instruction", inspect(*more).stdout)
            self.assertIn("<|im_start|>", inspect(*more, "tokenizer_name_or_path=base").stdout)
            self.assertIn("note: tokenizer_name_or_path is first",
                          run_skein(["plan", "c.yaml", "output_dir=second", *more], work.folder).stderr)


class InFourBits(unittest.TestCase):
    def test_memory_is_what_the_plan_says(self):
        """And of the linear layers little more than half a byte an element."""
        with Tuned(llama(hidden_size=64, intermediate_size=128, num_hidden_layers=4), **FOUR_BITS) as work:
            weights = {}
            for bits in ("4", "none"):
                for stage, strategy in enumerate(("ddp", "zero1", "zero2", "zero3")):
                    words = (f"distributed_strategy={strategy}", f"output_dir={strategy}-{bits}", f"quantization_bit={bits}")
                    command = ["plan", *work.command(*words, ranks=2)[1:], "--json"]
                    memory = json.loads(run_skein(command, work.folder).stdout)["model"]["memory_per_rank"][stage]
                    work.run(*words, ranks=2)
                    self.assertEqual(memory["flat_peak"], work.records(f"{strategy}-{bits}")[-1]["peak_memory_bytes"],
                                     (strategy, bits))
                    weights[strategy, bits] = memory["weights"]
            elements = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
            self.assertLessEqual(weights["ddp", "4"], weights["ddp", "none"] - 4 * elements + 0.6 * elements)
            self.assertLessEqual(weights["zero3", "4"], weights["zero3", "none"] - (4 - 0.6) * elements / 2)

    def test_what_it_has_learnt_is_merged_with_the_weights_as_they_were(self):
        with Tuned(**FOUR_BITS) as work:
            work.run("output_dir=out", "learning_rate=0.05", ranks=2)
            run_skein(["merge", "out", "--out", "merged"], work.folder)
            base, merged = (read_safetensors(work / name / "model.safetensors") for name in ("base", "merged"))
            for name, tensor in base.items():
                changed = name.endswith(("q_proj.weight", "down_proj.weight"))
                self.assertEqual(merged[name] != tensor, changed, name)

    def test_it_learns_about_as_well_as_without(self):
        with Tuned(max_steps=40, learning_rate=0.05, **FOUR_BITS) as work:
            losses = {}
            for bits in ("4", "none"):
                work.run(f"output_dir={bits}", f"quantization_bit={bits}")
                losses[bits] = [record["loss"] for record in work.records(bits)]
            self.assertLess(losses["4"][-1], 0.98 * losses["4"][0])
            self.assertNotEqual(losses["4"], losses["none"])
            self.assertLess(relative(losses["4"][-1], losses["none"][-1]), 0.02)

    def test_what_would_train_the_weights_is_refused(self):
        with Tuned() as work:
            four = "quantization_bit=4"
            for words, says in ((["finetuning_type=full"], "finetuning_type is full, which trains the weights"),
                                (["finetuning_type=freeze"], "finetuning_type is freeze, which trains the weights"),
                                (["train_from_scratch=true"], "finetuning_type is full, which trains the weights"),
                                (["finetuning_type=lora", "dtype=float64"], "dtype is float64: give dtype=float32")):
                with self.subTest(words=words):
                    ended = work.run("output_dir=new", four, *words, code=2, ranks=2)
                    self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                    self.assertIn(says, ended.stderr)
                    self.assertFalse((work / "new").exists())
                    ended = run_skein(["config", "check", "c.yaml", four, *words], work.folder, code=2)
                    self.assertIn(says, ended.stderr)


class Opened(unittest.TestCase):
    """What a LoRA run leaves, opened by the other commands."""

    @classmethod
    def setUpClass(cls):
        cls.work = Tuned(**LORA)
        cls.work.run("output_dir=out", "learning_rate=0.05")
        run_skein(["merge", "out", "--out", "merged"], cls.work.folder)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def eval_loss(self, *words):
        ended = run_skein(["eval", *words, "--dataset", "text.txt", "--block-size", "32", "--json", "--device", "cpu",
                           "--tokenizer", "bytes", "--dtype", "float32"], self.work.folder)
        return json.loads(ended.stdout)["eval_loss"]

    def generate(self, *words):
        return run_skein(["generate", *words, "--prompt", "abc", "--max-new-tokens", "24", "--temperature", "0",
                          "--device", "cpu", "--json"], self.work.folder).stdout

    def test_eval_takes_an_adapter_in_three_ways(self):
        expected = self.eval_loss("merged")
        self.assertGreater(abs(expected - self.eval_loss("base")), 1e-2)
        for words in (["out"], ["base", "--adapter", "out"], [f"out/checkpoint-{STEPS}", "--base", "base"]):
            with self.subTest(words=words):
                self.assertLess(relative(self.eval_loss(*words), expected), 1e-5)

    def test_generate_takes_an_adapter_in_three_ways(self):
        expected = self.generate("merged")
        self.assertNotEqual(self.generate("base"), expected)
        for words in (["out"], ["base", "--adapter", "out"], [f"out/checkpoint-{STEPS}", "--base", "base"]):
            with self.subTest(words=words):
                self.assertEqual(self.generate(*words), expected)

    def test_a_run_that_is_not_finished_is_its_latest_checkpoint(self):
        shutil.copytree(self.work / "out", self.work / "stopped", symlinks=True)
        for name in ("adapter_model.safetensors", "adapter_config.json", "trainer_state.json"):
            (self.work / "stopped" / name).unlink()
        self.assertEqual(self.generate("stopped"), self.generate("out"))

    def test_what_is_damaged_is_not_used(self):
        """One bit of a checkpoint with its manifest, which everybody who opens it has to see."""
        self.work.run("output_dir=full", "finetuning_type=full", "max_steps=2", "save_steps=2")
        for source, name in ((f"out/checkpoint-{STEPS}", "adapter_model"), ("full/checkpoint-2", "model")):
            shutil.copytree(self.work / source, self.work / f"damaged_{name}")
            path = self.work / f"damaged_{name}/{name}.safetensors"
            data = bytearray(path.read_bytes())
            data[-4] ^= 1
            path.write_bytes(data)
        generate = ("--prompt", "abc", "--max-new-tokens", "1", "--device", "cpu")
        evaluate = ("--dataset", "text.txt", "--block-size", "32", "--device", "cpu", "--tokenizer", "bytes")
        for name, command in (("model", ("generate", "damaged_model", *generate)),
                              ("model", ("eval", "damaged_model", *evaluate)),
                              ("model", self.work.command("model_name_or_path=damaged_model", "output_dir=begun",
                                                          "finetuning_type=full", ranks=2)),
                              ("adapter_model", ("merge", "damaged_adapter_model", "--out", "new")),
                              ("adapter_model", ("generate", "damaged_adapter_model", *generate)),
                              ("adapter_model", ("eval", "base", "--adapter", "damaged_adapter_model", *evaluate)),
                              ("adapter_model", self.work.command("adapter_name_or_path=damaged_adapter_model",
                                                                  "output_dir=begun_too"))):
            with self.subTest(command=command):
                ended = run_skein([*command], self.work.folder, code=4)
                self.assertIn(f"damaged_{name} is damaged: {name}.safetensors, tensor ", ended.stderr)
                self.assertFalse((self.work / "new").exists())

    def test_what_cannot_be_opened(self):
        def refused(*words):
            return run_skein(words, self.work.folder, code=2).stderr

        self.assertIn("out is an adapter, not a model", refused("export", "out", "--out", "x"))
        self.assertIn("`skein export DIR", refused("merge", "out", "--out", "x", "--dtype", "bfloat16"))
        self.assertIn("'nowhere' does not exist: name a folder with adapter_config.json", refused("merge", "nowhere", "--out", "x"))
        self.assertIn("leave it out", refused("generate", "base", "--adapter", "out", "--base", "base", "--prompt", "a"))
        self.assertIn("is no adapter", refused("generate", "base", "--base", "base", "--prompt", "a"))
        self.assertIn("is no adapter", refused("generate", "base", "--adapter", "merged", "--prompt", "a"))


class Refused(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = Tuned(**LORA)
        cls.work.make_base("other", seed=2)
        cls.work.run("output_dir=out")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def refuse(self, *words, says, code=2, ranks=1):
        ended = self.work.run("output_dir=new", *words, code=code, ranks=ranks)
        self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        for text in says:
            self.assertIn(text, ended.stderr)
        self.assertEqual(list((self.work / "new").glob("checkpoint-*")), [])

    def damaged(self, change):
        shutil.rmtree(self.work / "damaged", ignore_errors=True)
        shutil.copytree(self.work / "out", self.work / "damaged", symlinks=True)
        change(self.work / "damaged")

    def test_another_base(self):
        other = "model_name_or_path=other"
        both = r"an adapter of \S*base \(digest \w{32}\), and model_name_or_path is \S*other \(digest \w{32}\)"
        for words in (["output_dir=new", "adapter_name_or_path=out"],
                      ["output_dir=new", f"resume_from_checkpoint=out/checkpoint-{STEPS}"],
                      ["output_dir=out", "max_steps=9"]):
            with self.subTest(words=words):
                self.assertRegex(self.work.run(other, *words, code=2).stderr, both)

    def test_another_base_for_what_is_opened(self):
        """merge, eval, generate and chat ask what training asks."""
        digests = r"out is an adapter of \S*base \(digest \w{32}\), and (--base|the model) is other \(digest \w{32}\)"
        dataset = ["--dataset", "text.txt", "--device", "cpu"]
        for words in (["merge", "out", "--base", "other", "--out", "merged"], ["eval", "out", "--base", "other", *dataset],
                      ["eval", "other", "--adapter", "out", *dataset], ["chat", "other", "--adapter", "out"],
                      ["generate", "out", "--base", "other", "--prompt", "a"],
                      ["generate", "other", "--adapter", "out", "--prompt", "a"]):
            with self.subTest(words=words):
                ended = run_skein(words, self.work.folder, code=2)
                self.assertRegex(ended.stderr, digests)
                self.assertIn("Give its base", ended.stderr)
                self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        self.assertFalse((self.work / "merged").exists())

    def test_a_base_that_is_none(self):
        for words, says in ((["merge", "out", "--base", "nowhere"], "'nowhere' does not exist"),
                            (["merge", "out", "--base", "out"], "out is an adapter, not a model"),
                            (["merge", "base", "--base", "base"], "'base' is no adapter")):
            with self.subTest(words=words):
                self.assertIn(says, run_skein([*words, "--out", "merged"], self.work.folder, code=2).stderr)

    def test_a_tokenizer_with_more_ids_than_the_embedding_has_rows(self):
        def add_tokenizer(folder):
            self.work.write_tokenizer(folder.name)  # of 259 ids; the model has 257 rows

        self.damaged(add_tokenizer)
        ended = run_skein(["merge", "damaged", "--out", "beyond"], self.work.folder)
        self.assertIn("damaged/tokenizer.json has 259 ids, and the embedding 257 rows: ids from 257 on have none",
                      ended.stderr)
        self.assertNotIn("ids", run_skein(["merge", "out", "--out", "within"], self.work.folder).stderr)

    def test_another_adapter(self):
        resume = f"resume_from_checkpoint=out/checkpoint-{STEPS}"
        self.refuse(resume, "lora_rank=8", says=["r is 4 there and 8 here"])
        self.refuse(resume, "finetuning_type=full", says=["was saved with finetuning_type lora, this start has full"])

    def test_a_target_that_matches_no_layer(self):
        self.refuse("lora_target=q_prj", says=["q_proj"])

    def test_config_check_says_it_too(self):
        def check(*words, code=0):
            return run_skein(["config", "check", "c.yaml", *words], self.work.folder, code).stderr

        self.assertIn("freeze_trainable_layers has no effect with finetuning_type lora",
                      check("freeze_trainable_layers=1"))
        self.assertIn("q_proj", check("lora_target=q_prj", code=2))
        self.assertIn("an adapter of", check("adapter_name_or_path=out", "model_name_or_path=other", code=2))
        self.assertIn("out is an adapter, not a model", check("model_name_or_path=out", code=2))
        self.assertEqual(check("output_dir=new"), "")

    def test_a_forgotten_type(self):
        keys = {key: value for key, value in self.work.keys.items() if key != "finetuning_type"}
        self.work.write_recipe(keys, "forgotten.yaml")
        ended = run_skein(["train", "forgotten.yaml", "output_dir=new"], self.work.folder, code=2)
        self.assertRegex(ended.stderr, r"forgotten.yaml:\d+:\d+: lora_rank has no effect with finetuning_type full: "
                                       r"give finetuning_type=lora, or leave it out")
        for word in ("lora_rank=8", "lora_target=all", "freeze_trainable_layers=2"):  # at their defaults
            keys = {key: value for key, value in self.work.keys.items() if key not in LORA}
            self.work.write_recipe(keys, "forgotten.yaml")
            ended = run_skein(["train", "forgotten.yaml", "output_dir=new", word], self.work.folder, code=2)
            self.assertIn("has no effect with finetuning_type full", ended.stderr)

    def test_from_scratch(self):
        self.refuse("train_from_scratch=true", says=["train_from_scratch"])

    def test_adapter_tensors_that_do_not_match(self):
        def retarget(folder):
            path = folder / "adapter_config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"target_modules": ["q_proj", "k_proj"]}))

        self.damaged(retarget)
        self.refuse("adapter_name_or_path=damaged",
                    says=["missing in the files (4): base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight",
                          "not part of it (4): base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"])

    def test_base_weights_beside_an_adapter(self):
        """PEFT stores the embedding too where it was resized or has an adapter."""
        name = "model.embed_tokens.weight"
        dtype, shape, data = read_safetensors(self.work / "base/model.safetensors")[name]

        def add(values, dtype=dtype):
            def change(folder):
                path = folder / "adapter_model.safetensors"
                write_safetensors(path, read_safetensors(path) | {PREFIX + name: (dtype, shape, values)})
            return change

        self.damaged(add(data))
        self.work.run("output_dir=same", "adapter_name_or_path=damaged", "max_steps=2")
        # PEFT saved it in 16 bits: the base has 32, and trains with them.
        self.damaged(add(rounded(data), "BF16"))
        self.work.run("output_dir=rounded", "adapter_name_or_path=damaged", "max_steps=2")
        self.assertEqual(numbers(self.work.records("rounded")), numbers(self.work.records("same")))
        for values, dtype in ((data[:-1] + bytes([data[-1] ^ 1]), dtype), (rounded(data)[:-1] + b"\x3f", "BF16")):
            self.damaged(add(values, dtype))
            for ranks in (1, 2):
                self.refuse("adapter_name_or_path=damaged", ranks=ranks,
                            says=[f"stores {name} with other values than the base has",
                                  "skein merge damaged --base base --out DIR"])

    def test_a_truncated_adapter(self):
        def cut(folder):
            path = folder / "adapter_model.safetensors"
            os.truncate(path, path.stat().st_size - 4)

        self.damaged(cut)
        self.refuse("adapter_name_or_path=damaged", says=["adapter_model.safetensors"], code=4)

    def test_flipped_bits(self):
        """Of what a run goes on with, every bit counts; of strangers' files those of the header."""
        def flip(path, at):
            data = bytearray(path.read_bytes())
            data[at] ^= 4
            path.write_bytes(data)

        name = "adapter_model.safetensors"
        length = int.from_bytes((self.work / "out" / name).read_bytes()[:8], "little")
        header = (self.work / "out" / name).read_bytes()[8:8 + length]
        places = {"length": 0, "length_above": 6, "brace": 8, "dtype": 8 + header.index(b'"F32"') + 1,
                  "shape": 8 + header.index(b'"shape":[') + 9, "end": 8 + header.index(b'"data_offsets":[') + 18}
        for place, at in places.items():
            with self.subTest(place):
                self.damaged(lambda folder: flip(folder / name, at))
                self.refuse("adapter_name_or_path=damaged", says=[name], code=4)
        checkpoint = f"damaged/checkpoint-{STEPS}"
        for file in (name, "optimizer.safetensors"):
            with self.subTest(file):
                self.damaged(lambda folder: flip(folder / f"checkpoint-{STEPS}" / file, -1))
                self.refuse(f"resume_from_checkpoint={checkpoint}",
                            says=[f"{checkpoint} is not a whole checkpoint", f"{file}, tensor ",
                                  "are not those that were written"])

    def test_a_damaged_base(self):
        path = self.work / "cut/model.safetensors"
        whole = (self.work / "base/model.safetensors").read_bytes()
        for size in (0, 7, 100, len(whole) - 1):
            with self.subTest(size):
                shutil.rmtree(self.work / "cut", ignore_errors=True)
                shutil.copytree(self.work / "base", self.work / "cut", symlinks=True)
                path.unlink()
                path.write_bytes(whole[:size])
                self.refuse("model_name_or_path=cut", says=["cut/model.safetensors"], code=4)

    def test_an_adapters_index_leads_nowhere_else(self):
        def plant(folder):
            (folder / "adapter_model.safetensors").unlink()
            (folder / "adapter_model.safetensors.index.json").write_text(json.dumps(
                {"metadata": {}, "weight_map": {"a": "../out/adapter_model.safetensors"}}))

        self.damaged(plant)
        self.refuse("adapter_name_or_path=damaged", says=["not a plain file name"], code=4)

    def test_another_kind_of_adapter(self):
        def rename(folder):
            path = folder / "adapter_config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"peft_type": "IA3"}))

        self.damaged(rename)
        self.refuse("adapter_name_or_path=damaged", says=["peft_type is 'IA3'; only LORA adapters are read"])

    def test_no_adapter(self):
        self.refuse("adapter_name_or_path=base", says=["'base' is no adapter: it has no adapter_config.json"])


if __name__ == "__main__":
    unittest.main()
