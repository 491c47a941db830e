# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein gradients collect`: the same rows whoever collects them, after every interruption; what is refused."""
import json
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

from gradient_kills import Collection
from harness import (ENVIRONMENT, SKEIN, ChatWorkspace, children, finish, free_port, read_safetensors, run_skein, start_skein,
                     write_safetensors)
from kills import environment_of

DIMENSION = 256


class Collected(unittest.TestCase):
    """An adapter after two updates, with its moments; rows of the data it was trained on."""

    @classmethod
    def setUpClass(cls):
        cls.work = ChatWorkspace(num_rows=37, per_device_train_batch_size=2)
        cls.work.run("output_dir=base", "max_steps=2", "save_strategy=no")
        cls.work.run("output_dir=warm", "model_name_or_path=base", "train_from_scratch=false", "finetuning_type=lora",
                     "lora_rank=4", "max_steps=2", "save_steps=1")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def words(self, output, *more, model="warm/checkpoint-2"):
        return ["gradients", "collect", "--train_file", "chat.jsonl", "--template", "chatml", "--model", model, "--output_path",
                output, "--gradient_projection_dimension", DIMENSION, "--block_samples", "5", "--max_length", "128",
                "device=cpu", *more]

    def collect(self, output, *more, code=0, **keys):
        return run_skein(self.words(output, *more, **keys), self.work.folder, code)

    def merged(self, output):
        run_skein(["gradients", "merge", output], self.work.folder)
        return (self.work / output / "gradients.safetensors").read_bytes()

    def test_the_same_bytes_for_every_number_of_ranks(self):
        ended = self.collect("one")
        self.assertIn("gradient_type is adam: the checkpoint has the optimizer's moments", ended.stderr)
        self.assertTrue((self.work / "one/gradients.pt").exists())
        expected = self.merged("one")
        rows = read_safetensors(self.work / "one/gradients.safetensors")
        self.assertEqual(rows["rows"][1], [37, DIMENSION])
        for ranks in (2, 3):
            self.collect(f"of{ranks}", "--nproc-per-node", ranks)
            self.assertEqual(sorted(p.name for p in (self.work / f"of{ranks}").glob("rank_*")),
                             [f"rank_{i}" for i in range(ranks)])
            self.assertEqual(self.merged(f"of{ranks}"), expected)
        self.collect("sharded", "--nproc-per-node", "2", "distributed_strategy=zero3")
        self.assertEqual(self.merged("sharded"), expected)
        self.collect("recomputed", "gradient_checkpointing=true")
        self.assertEqual(self.merged("recomputed"), expected)
        # LESS's own words for ranks; here they are started by hand.
        port = str(free_port())
        hand = [subprocess.Popen([SKEIN, *map(str, self.words("hand", "--world_size", "2", "--rank", rank, "--local_rank",
                                                              rank, "--master_port", port))],
                                 cwd=self.work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, start_new_session=True) for rank in (0, 1)]
        for process in hand:
            finish(process, 0)
        self.assertEqual(self.merged("hand"), expected)
        self.collect("local", "--world_size", "2")
        self.assertEqual(self.merged("local"), expected)

    def test_sharded_ranks_with_different_numbers_of_batches(self):
        """Three blocks on two ranks: in the last round one has nothing to do."""
        def collect(output, *more):
            self.collect(output, "--max_samples", "13", "--batch_tokens", "60", *more)
            return self.merged(output)

        expected = collect("few")
        for ranks in (2, 4):  # the fourth has no block at all
            self.assertEqual(collect(f"few{ranks}", "--nproc-per-node", ranks, "distributed_strategy=zero3"), expected)
        self.assertTrue((self.work / "few4/rank_3/gradients.pt").exists())
        for kind in ("reps", "loss"):
            rows = [collect(f"{kind}-{name}", "--info_type", kind, *more) for name, more in (
                ("one", []), ("two", ["--nproc-per-node", "2", "distributed_strategy=zero3"]))]
            self.assertEqual(*rows)

    def test_killed_at_random_instants(self):
        with Collection() as collection:
            for seed in (0, 1, 5):
                collection.play(seed)

    def test_a_checkpoint_of_all_weights_gets_an_adapter_without_moments(self):
        self.work.run("output_dir=full", "model_name_or_path=base", "train_from_scratch=false", "max_steps=1", "save_steps=1")
        ended = self.collect("of-full", model="full/checkpoint-1")
        self.assertIn("gradient_type is sgd: a new adapter has no moments", ended.stderr)

    def test_losses_are_not_scored(self):
        self.collect("losses", "--info_type", "loss", "--max_samples", "5")
        ended = run_skein(["gradients", "score", "--train", "losses", "--validation", "losses", "--out", "scores"],
                          self.work.folder, 2)
        self.assertIn("losses holds losses, one number a sample", ended.stderr)

    def test_what_was_killed_is_gone_on_with(self):
        self.collect("whole")
        expected = self.merged("whole")
        for kill in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(kill):
                output = f"killed-{kill.name}"
                process = subprocess.Popen([SKEIN, *map(str, self.words(output, "--nproc-per-node", "2"))],
                                           cwd=self.work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
                deadline = time.monotonic() + 60
                while not list((self.work / output).glob("rank_*/block-*")) and time.monotonic() < deadline:
                    time.sleep(0.001)
                os.kill(process.pid, kill)
                ended = finish(process)
                if kill == signal.SIGTERM:
                    self.assertIn(ended.returncode, (0, 75), ended.stderr)
                    if ended.returncode == 75:
                        self.assertFalse(list((self.work / output).glob("rank_*/gradients.pt")))
                ended = self.collect(output)  # by one rank
                self.assertEqual(self.merged(output), expected)
        again = self.collect("whole")
        self.assertIn("8 blocks were there", again.stderr)

    def test_types_and_other_features(self):
        self.collect("sgd", "--gradient_type", "sgd")
        self.collect("validation", "--validation")
        self.assertEqual(self.merged("sgd"), self.merged("validation"))
        self.collect("sign", "--gradient_type=sign", "--max_samples", "3")
        self.assertEqual(read_safetensors(self.work / "sign/block-00000000.safetensors")["rows"][1], [3, DIMENSION])
        words = self.words("two")
        words[words.index(DIMENSION)] = "128,256"
        run_skein(words, self.work.folder)
        self.merged("two")
        self.assertTrue((self.work / "two/dim128/all_orig.pt").exists())
        self.collect("reps", "--info_type", "reps")
        self.collect("loss", "--info_type", "loss", "--nproc-per-node", "2")
        self.merged("loss")
        loss = read_safetensors(self.work / "loss/gradients.safetensors")["rows"]
        self.assertEqual(loss[1], [37, 1])
        ended = self.collect("fresh", model="base")
        self.assertIn("base has no adapter: one of rank 8 and alpha 32 begins beside it", ended.stderr)

    def test_signs_do_not_depend_on_the_size_of_blocks(self):
        """A sign that flips with the company of its sample would move a column by twice an element."""
        kept = {}
        for size in (1, 5, 16, 64):
            words = self.words(f"signs{size}", "--gradient_type", "sign", "--nproc-per-node", 2 if size == 5 else 1)
            words[words.index("--block_samples") + 1] = size
            run_skein(words, self.work.folder)
            self.merged(f"signs{size}")
            kept[size] = read_safetensors(self.work / f"signs{size}/gradients.safetensors")
            self.assertEqual(len(list((self.work / f"signs{size}").glob("**/block-*"))), -(-37 // size))
        for size in (5, 16, 64):
            self.assertEqual(kept[size], kept[1], size)
        # Of signs indeed: a column is a sum of as many ones, each plus or minus, over a common root.
        self.collect("signs-sgd", "--gradient_type", "sgd")
        self.merged("signs-sgd")
        self.assertNotEqual(read_safetensors(self.work / "signs-sgd/gradients.safetensors")["rows"], kept[1]["rows"])

    def test_rows_without_a_target(self):
        """What is cut off before the answer has none: it is listed, has no row, is scored and chosen last of all."""
        lines = (self.work / "chat.jsonl").read_text().splitlines(keepends=True)[:9]
        for place in (2, 7):
            lines[place] = json.dumps({"messages": [{"role": "user", "content": "word " * 60 + str(place)},
                                                    {"role": "assistant", "content": "never seen"}]}) + "\n"
        (self.work / "cut.jsonl").write_text("".join(lines))

        def collect(output, *more, code=0, data="cut.jsonl"):
            words = self.words(output, "excess_length_strategy=truncate", *more)
            words[words.index("chat.jsonl")] = data
            return run_skein(words, self.work.folder, code)

        collect("cut", "--gradient_type", "sgd", "--nproc-per-node", "2")
        ended = run_skein(["gradients", "merge", "cut"], self.work.folder)
        self.assertIn("2 samples have no row, because nothing of it is supervised: 2, 7", ended.stderr)
        merged = read_safetensors(self.work / "cut/gradients.safetensors")
        self.assertEqual(merged["rows"][1], [7, DIMENSION])
        self.assertEqual(list(struct.unpack("<7q", merged["samples"][2])), [0, 1, 3, 4, 5, 6, 8])
        run_skein(["gradients", "score", "--train", "cut", "--validation", "cut", "--out", "cut-scores", "--name", "cut"],
                  self.work.folder)
        scores = struct.unpack("<9f", read_safetensors(self.work / "cut-scores/cut_influence_score.safetensors")["scores"][2])
        self.assertEqual([place for place in range(9) if scores[place] == float("-inf")], [2, 7])
        run_skein(["gradients", "select", "--scores", "cut-scores/cut_influence_score.safetensors", "--train-files", "cut.jsonl",
                   "--top", "9", "--out", "cut-chosen"], self.work.folder)
        chosen = [path.read_text() for path in (self.work / "cut-chosen").glob("top_*.jsonl")]
        self.assertEqual([sorted(text.splitlines(keepends=True)) for text in chosen],
                         [sorted(line for place, line in enumerate(lines) if place not in (2, 7))])
        # None has one.
        (self.work / "all-cut.jsonl").write_text(lines[2] + lines[7])
        ended = collect("all-cut", "--gradient_type", "sgd", code=4, data="all-cut.jsonl")
        self.assertIn("cutoff_len=128 leaves no token of any answer in 2 rows", ended.stderr)
        self.assertFalse((self.work / "all-cut/collection.json").exists())

    def test_a_gradient_that_is_not_finite_is_named(self):
        """One letter has no number; it is in one row."""
        lines = (self.work / "chat.jsonl").read_text().splitlines(keepends=True)[:12]
        lines[6] = json.dumps({"messages": [{"role": "user", "content": "Z"}, {"role": "assistant", "content": "1"}]}) + "\n"
        (self.work / "letter.jsonl").write_text("".join(lines))
        shutil.copytree(self.work / "base", self.work / "nan-base", ignore=shutil.ignore_patterns("manifest*"))
        tensors = read_safetensors(self.work / "base/model.safetensors")
        dtype, shape, values = tensors["model.embed_tokens.weight"]
        [letter] = json.loads(run_skein(["tokenizer", "encode", "base", "--text", "Z", "--json", "--no-special-tokens"],
                                          self.work.folder).stdout)
        width = len(values) // shape[0]
        tensors["model.embed_tokens.weight"] = (dtype, shape, values[:letter * width] + b"\xff" * width + values[(letter + 1) * width:])
        write_safetensors(self.work / "nan-base/model.safetensors", tensors)

        def collect(output, *more, code=0):
            words = self.words(output, "--gradient_type", "sgd", "--initialize_lora", *more, model="nan-base")
            words[words.index("chat.jsonl")] = "letter.jsonl"
            return run_skein(words, self.work.folder, code)

        for ranks in (1, 2):
            ended = collect(f"broken{ranks}", "--nproc-per-node", ranks, code=4)
            self.assertIn("the gradient of sample 6 is not finite: look at that row, or give --non_finite skip", ended.stderr)
            self.assertNotRegex(ended.stderr, r"gradient of sample (?!6 )")
        ended = collect("broken2", "--non_finite", "skip")
        self.assertIn("sample 6 has a gradient that is not finite, and no row", ended.stderr)
        ended = run_skein(["gradients", "merge", "broken2"], self.work.folder)
        self.assertIn("1 sample has no row, because its gradient is not finite: 6", ended.stderr)
        self.assertEqual(read_safetensors(self.work / "broken2/gradients.safetensors")["rows"][1], [11, DIMENSION])

    def test_a_lost_rank_is_made_good_by_a_restart(self):
        self.collect("restart-whole")
        expected = self.merged("restart-whole")
        process = start_skein(self.words("restart", "--nproc-per-node", "2", "--max-restarts", "1"), self.work.folder)
        victim, deadline = None, time.monotonic() + 60
        while victim is None and process.poll() is None and time.monotonic() < deadline:
            victim = next((pid for pid in children(process.pid) if b"RANK=1" in environment_of(pid).split(b"\0")), None)
        self.assertIsNotNone(victim)
        os.kill(victim, signal.SIGKILL)
        ended = finish(process, 0)
        self.assertIn("rank 1 of 2", ended.stderr)
        self.assertIn("restarting (1 of 1)", ended.stderr)
        self.assertEqual(self.merged("restart"), expected)

    def test_the_factorised_projection(self):
        def collect(output, *more):
            return self.collect(output, "--projection", "factorised", *more)

        ended = collect("factors")
        self.assertIn("gradient_type is sgd: a factorised projection never forms", ended.stderr)
        columns = json.loads((self.work / "factors/collection.json").read_text())["dimensions"]
        self.assertIn(f"has {columns[0]} columns of the {DIMENSION} that were asked for", ended.stderr)
        expected = self.merged("factors")
        self.assertEqual(read_safetensors(self.work / "factors/gradients.safetensors")["rows"][1], [37, *columns])
        for output, more in (("factors2", ["--nproc-per-node", "2"]), ("factors-recomputed", ["gradient_checkpointing=true"]),
                             ("factors-sharded", ["--nproc-per-node", "2", "distributed_strategy=zero3"])):
            collect(output, *more)
            self.assertEqual(self.merged(output), expected)
        # Another feature space.
        self.collect("dense", "--gradient_type", "sgd")
        ended = run_skein(["gradients", "score", "--train", "factors", "--validation", "dense"], self.work.folder, code=2)
        self.assertIn("projection", ended.stderr)
        run_skein(["gradients", "score", "--train", "factors", "--validation", "factors2", "--out", "factor-scores"],
                  self.work.folder)

    def test_moments_of_other_programs(self):
        checkpoint = self.work / "foreign-2"
        shutil.copytree(self.work / "warm/checkpoint-2", checkpoint, ignore=shutil.ignore_patterns("manifest*", "trainer_*"))
        (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 2, "log_history": []}))
        self.collect("own", "--adam_form", "standard")
        self.collect("foreign", "--adam_form", "standard", model="foreign-2")
        self.assertEqual(*(read_safetensors(self.work / f"{name}/block-00000000.safetensors")["rows"]
                           for name in ("own", "foreign")))
        (checkpoint / "trainer_state.json").write_text("{}")
        self.collect("without-step", model="foreign-2")  # LESS's form needs none
        ended = self.collect("no-step", "--adam_form", "standard", model="foreign-2", code=2)
        self.assertIn("--adam_form less", ended.stderr)
        # A pickle alone has none.
        (checkpoint / "optimizer.safetensors").rename(checkpoint / "optimizer.pt")
        ended = self.collect("pickle", model="foreign-2")
        self.assertIn("gradient_type is sgd: optimizer.pt is a pickle", ended.stderr)
        ended = self.collect("pickle-adam", "--gradient_type", "adam", model="foreign-2", code=2)
        self.assertIn("scripts/hf_moments.py", ended.stderr)

    def test_moments_of_another_model_are_refused(self):
        checkpoint = self.work / "other-2"
        for moments, keys, says in [
                ("of-rank-8", ["lora_rank=8"], r"lora_A\.weight\.exp_avg is \(8, 32\) there, \(4, 32\) in the model; .*and 25 more; give --gradient_type sgd"),
                ("of-queries", ["lora_rank=4", "lora_target=q_proj"], r"k_proj\.lora_A\.weight has none; [^;]*k_proj\.lora_B\.weight has none; .*give --gradient_type sgd")]:
            with self.subTest(moments):
                self.work.run(f"output_dir={moments}", "model_name_or_path=base", "train_from_scratch=false",
                              "finetuning_type=lora", "max_steps=1", "save_steps=1", *keys)
                shutil.rmtree(checkpoint, ignore_errors=True)
                shutil.copytree(self.work / "warm/checkpoint-2", checkpoint,
                                ignore=shutil.ignore_patterns("manifest*", "optimizer*"))
                shutil.copy(self.work / moments / "checkpoint-1/optimizer.safetensors", checkpoint)
                ended = self.collect("others", model="other-2", code=2)
                self.assertIn("the optimizer's moments in other-2 are not those of these parameters", ended.stderr)
                self.assertRegex(ended.stderr, says)
                self.assertFalse((self.work / "others/collection.json").exists())
        self.collect("others", "--gradient_type", "sgd", model="other-2")

    def test_a_damaged_shard_of_a_rank_is_made_again(self):
        """Wherever its block goes then."""
        self.collect("mended", "--nproc-per-node", "2")
        expected = self.merged("mended")
        shard = self.work / "mended/rank_1/block-00000001.safetensors"
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
        for _ in range(2):
            ended = self.collect("mended", "--nproc-per-node", "2")
            self.assertIn("goes without block 1", ended.stderr)
        self.assertEqual(self.merged("mended"), expected)

    def test_what_has_no_tap(self):
        ended = self.collect("norms", "--parameters", "adapter,norm", "--gradient_type", "sgd")
        self.assertRegex(ended.stderr, r"model.norm.weight is of no linear layer .* one at a time, not \d+ together")
        ended = self.collect("norms3", "--parameters", "adapter,norm", "--gradient_type", "sgd", "--nproc-per-node", "2",
                             "distributed_strategy=zero3", code=2)
        self.assertIn("model.norm.weight", ended.stderr)
        self.assertIn("distributed_strategy=ddp", ended.stderr)

    def test_refusals(self):
        self.collect("taken")
        for words, says in [
                (["--gradient_type", "sgd"], ["gradient_type", "adam", "sgd", "taken"]),
                (["--max_samples", "5"], ["num_samples is 37 there and 5 now"]),
                (["--gradient_projection_dimension", "0"], ["--gradient_projection_dimension", "'0'"]),
                (["--gradient_type", "adamw"], ["--gradient_type", "'adamw'", "adam, sgd, sign"]),
                (["--info_type", "gradients"], ["grads, reps, loss"]),
                (["--parameters", "q_prj"], ["'q_prj'"]),
                (["--projection", "sparse"], ["--projection", "'sparse'", "dense, factorised"]),
                (["--projection", "factorised"], ["gradient_type is", "taken"]),
                (["--projection", "factorised", "--gradient_type", "adam"], ["--gradient_type sgd", "--projection dense"]),
                (["--projection", "factorised", "--gradient_type", "sign"], ["--gradient_type sgd", "--projection dense"]),
                (["--projection", "factorised", "--info_type", "reps"], ["--info_type reps"]),
                (["--gradient_projection_dimension", "128,256", "--projection", "factorised"], ["names 2", "give one"]),
                (["--gradient_projection_dimension", "3", "--projection", "factorised"], ["3 is too small", "or more"]),
                (["--parameters", "norm,q_proj", "--projection", "factorised"], ["model.norm.weight", "--parameters"]),
                (["--task", "mmlu"], ["--train_file", "--groups"]),
                (["--percentage", "5"], ["--top 5%"]),
                (["dtype=float16"], ["loss scale", "dtype=bfloat16", "dtype=float32"]),
                (["quantization_bit=4"], ["quantization_bit=none"]),
                (["--batch_tokens", "70"], ["batch_tokens is 8192 there and 70 now"]),
                (["excess_length_strategy=drop"], ["excess_length is", "drop"]),
                (["dtype=bfloat16"], ["dtype is", "float32", "bfloat16"]),
                (["--initialize_lora"], ["warm/checkpoint-2 is one"]),
                (["--model", "nowhere"], ["nowhere"]),
                (["--train_file", "none.jsonl"], ["none.jsonl"]),
                (["--gradient_tpye", "sgd"], ["did you mean"])]:
            with self.subTest(words):
                keep = [str(w) for w in self.words("taken")]
                flag = words[0]
                if flag in keep:  # in its place
                    at = keep.index(flag)
                    keep[at:at + 2] = []
                ended = run_skein([*keep, *words], self.work.folder, code=2)
                self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
                for part in says:
                    self.assertIn(part, ended.stderr)
        ended = self.collect("no-moments", "--gradient_type", "adam", model="base", code=2)
        self.assertIn("needs the optimizer's moments", ended.stderr)
        # A flipped bit is found, and its block collected again.
        shard = self.work / "taken/block-00000001.safetensors"
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
        ended = run_skein(["gradients", "merge", "taken"], self.work.folder, code=4)
        self.assertIn("5 to 9", ended.stderr)
        self.collect("taken")
        run_skein(["gradients", "merge", "taken"], self.work.folder)

    def test_from_rows_to_a_choice(self):
        for name, words in (("train", []), ("dev", ["--validation", "--max_samples", "4"])):
            self.collect(name, "--gradient_type", "sgd", *words)
        run_skein(["gradients", "score", "--train", "train", "--validation", "dev", "--out", "scores", "--name", "t"],
                  self.work.folder)
        run_skein(["gradients", "select", "--scores", "scores/t_influence_score.safetensors", "--train-files", "chat.jsonl",
                   "--top", "5", "--out", "chosen"], self.work.folder)
        chosen = (self.work / "chosen/top_num5.jsonl").read_text().splitlines()
        self.assertEqual(len(chosen), 5)
        self.assertLessEqual(set(chosen), set((self.work / "chat.jsonl").read_text().splitlines()))
        for line in chosen:
            json.loads(line)

    def test_ranks_that_were_given_different_words(self):
        """They were started by hand; nothing of them is mixed."""
        port = str(free_port())
        hand = [subprocess.Popen([SKEIN, *map(str, self.words("odd", "--world_size", "2", "--rank", rank, "--local_rank", rank,
                                                              "--master_port", port, "--gradient_type", kind))],
                                 cwd=self.work.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, start_new_session=True)
                for rank, kind in ((0, "sgd"), (1, "sign"))]
        ended = [finish(process) for process in hand]
        self.assertEqual([end.returncode for end in ended], [2, 2], ended)
        self.assertIn('gradient_type is "sgd" on rank 0 and "sign" on rank 1', ended[0].stderr + ended[1].stderr)
        self.assertFalse((self.work / "odd/collection.json").exists())

    def test_lines_that_were_never_scored(self):
        self.collect("scored", "--gradient_type", "sgd")
        score = ["gradients", "score", "--train", "scored", "--validation", "scored", "--out", "scored-scores", "--name"]
        run_skein([*score, "s"], self.work.folder)
        lines = (self.work / "chat.jsonl").read_text().splitlines(keepends=True)
        (self.work / "reversed.jsonl").write_text("".join(reversed(lines)))
        (self.work / "doubled.jsonl").write_text("".join(lines + lines))
        select = ["gradients", "select", "--scores", "scored-scores/s_influence_score.safetensors", "--top", "5"]
        for words, says in [
                (["--train-files", "reversed.jsonl"], "reversed.jsonl is not the file"),
                (["--train-files", "doubled.jsonl"], "doubled.jsonl is not the file"),
                (["--train-files", "warm"], "is about 1 file, and "),
                (["--train-files", "chat.jsonl", "--scores", "scored-scores/s_influence_score.pt"],
                 "give scored-scores/s_influence_score.safetensors")]:
            with self.subTest(words):
                ended = run_skein([*(select[:2] + select[4:] if "--scores" in words else select), *words, "--out", "never"],
                                  self.work.folder, code=2)
                self.assertIn(says, ended.stderr)
        ended = run_skein([*select[:5], "99", "--train-files", "chat.jsonl", "--out", "all"], self.work.folder)
        self.assertIn("--top asks for 99, and 37 of 37 samples have a score", ended.stderr)
        ended = run_skein(["gradients", "score", "--train", "", "--validation", "scored"], self.work.folder, code=2)
        self.assertNotIn("filesystem error", ended.stderr)
        (self.work / "none.txt").write_text("")
        for words, says in [
                (["--groups", "none.txt"], "names no group"),
                (["--groups", "warm"], "is no file"),
                (["--groups", "/dev/zero"], "is no file"),
                (["--groups", "k" * 5000], "is no file"),
                (["--groups", "role", "--validation-file", "reversed.jsonl"], "reversed.jsonl is not the file"),
                (["--name", "n" * 300], "--name"),
                (["--name", "a\n\x1b[31mred"], "a\\n\\x1b[31mred")]:
            with self.subTest(words):
                ended = run_skein([*score[:-1], *words], self.work.folder, code=2)
                self.assertIn(says, ended.stderr)

    def test_what_rows_depend_on(self):
        """A setting beside the weights, and the number of updates of Adam's own form."""
        base = self.work / "base-theta"
        shutil.copytree(self.work / "base", base, ignore=shutil.ignore_patterns("manifest*"))
        config = json.loads((base / "config.json").read_text())
        self.collect("theta", "--gradient_type", "sgd", model="base-theta")
        (base / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-2}))
        ended = self.collect("theta", "--gradient_type", "sgd", model="base-theta", code=2)
        self.assertIn("the model is another", ended.stderr)
        checkpoint = self.work / "counted-2"
        shutil.copytree(self.work / "warm/checkpoint-2", checkpoint, ignore=shutil.ignore_patterns("manifest*", "trainer_*"))
        for step, code in ((2, 0), (3, 2)):
            (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
            ended = self.collect("counted", "--adam_form", "standard", model="counted-2", code=code)
        self.assertIn("the optimizer's moments are others", ended.stderr)

    def test_where_nothing_can_be_collected(self):
        (self.work / "a-file").write_text("")
        (self.work / "dangling").symlink_to("nowhere")
        (self.work / "parts-of/more").mkdir(parents=True)
        shutil.copy(self.work / "chat.jsonl", self.work / "parts-of/rows.jsonl")
        for output, more, says in [
                ("a-file", [], "a-file is no folder"),
                ("dangling", [], "dangling is no folder"),
                ("a-file/below", [], "--output_path a-file/below"),
                ("parts-of", ["--train_file_dir", "parts-of"], "lie in each other"),
                ("parts-of/more", ["--train_file_dir", "parts-of"], "lie in each other"),
                (".", ["--train_file_dir", "parts-of"], "lie in each other"),
                ("skips", ["bad_lines=skip"], "bad_lines=stop")]:
            with self.subTest(output):
                words = self.words(output, *more)
                if more and more[0] == "--train_file_dir":
                    words[2:4] = []
                ended = run_skein(words, self.work.folder, code=2)
                self.assertIn(says, ended.stderr)
        self.assertFalse((self.work / "parts-of/collection.json").exists())

    def test_several_files(self):
        """Those of train_file_dir are one list of samples."""
        lines = (self.work / "chat.jsonl").read_text().splitlines()
        (self.work / "rows").mkdir()
        (self.work / "rows/b.jsonl").write_text("\n".join(lines[20:]))
        (self.work / "rows/a.jsonl").write_text("\n\n".join(lines[:20]))
        words = self.words("parts", "--gradient_type", "sgd")
        words[2:4] = ["--train_file_dir", "rows"]
        run_skein(words, self.work.folder)
        self.collect("joined", "--gradient_type", "sgd")
        for name, files in (("parts", ["rows/a.jsonl", "rows/b.jsonl"]), ("joined", ["chat.jsonl"])):
            run_skein(["gradients", "score", "--train", name, "--validation", name, "--out", "scores", "--name", name],
                      self.work.folder)
            run_skein(["gradients", "select", "--scores", f"scores/{name}_influence_score.safetensors", "--train-files", *files,
                       "--top", "9", "--out", f"chosen-{name}"], self.work.folder)
        self.assertEqual(*((self.work / f"chosen-{name}/top_num9.jsonl").read_text() for name in ("parts", "joined")))

    def test_scores_know_their_checkpoints(self):
        for step in (1, 2):
            for name, words in (("t", []), ("v", ["--validation", "--max_samples", "3"])):
                self.collect(f"{name}{step}", "--gradient_type", "sgd", *words, model=f"warm/checkpoint-{step}")
        words = ["gradients", "score", "--train", "t1", "t2", "--validation", "v1", "v2", "--out", "known", "--checkpoints"]
        run_skein([*words, "warm/checkpoint-1", "warm/checkpoint-2"], self.work.folder)
        ended = run_skein([*words, "warm/checkpoint-2", "warm/checkpoint-1"], self.work.folder, code=2)
        self.assertIn("t1 was not collected at warm/checkpoint-2", ended.stderr)

    def test_selftest(self):
        for ranks in (3, 1):
            ended = run_skein(["gradients", "selftest", "--nproc-per-node", ranks], self.work.folder)
            self.assertIn("byte for byte", ended.stdout)
        ended = run_skein(["gradients", "selftest", "--bogus"], self.work.folder, code=2)
        self.assertNotIn("ok", ended.stdout)
        self.assertIn("'--bogus'", ended.stderr)
        ended = subprocess.run([SKEIN, "gradients", "selftest"], cwd=self.work.folder, env=ENVIRONMENT | {"TMPDIR": "/nowhere"},
                               stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("/nowhere", ended.stderr)
        process = start_skein(["gradients", "selftest"], self.work.folder)
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGTERM)
        self.assertEqual(finish(process).returncode, 75)


if __name__ == "__main__":
    unittest.main()
