# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Bad input: the right exit code, one message that says what to do, and nothing lost of a run that is
already there. What the words alone show is in command_test.py."""
import hashlib
import json
import os
import shutil
import unittest

from harness import Workspace, gpt2, llama, read_safetensors, run_skein, write_safetensors

GOOD_LINE = b'{"text": "abcdefgh abcdefgh abcdefgh abcdefgh"}\n'


class BadInput(unittest.TestCase):
    """Every case is started into the folder `out` of a finished run, which must stay as it is."""

    @classmethod
    def setUpClass(cls):
        cls.work = Workspace(max_steps=2, global_batch_size=8, output_dir="out", save_steps=1,
                             data_cache_dir="cache")
        cls.work.run(ranks=2)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.work.folder)

    def snapshot(self):
        """Digests of the run's files; messages go to logs/ in any case."""
        out = self.work / "out"
        return {path.relative_to(out): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in out.rglob("*") if path.is_file() and path.parent != out / "logs"}

    def refuse(self, *words, says, code=2, ranks=2):
        before = self.snapshot()
        ended = run_skein(self.work.command(*words, ranks=ranks), self.work.folder, code)
        self.assertEqual(ended.stdout, "")
        self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        message = ended.stderr[ended.stderr.index("error: "):]
        for part in says:
            self.assertIn(part, message)
        self.assertEqual(self.snapshot(), before)


class Data(BadInput):
    def test_missing_and_empty_folder(self):
        (self.work / "empty").mkdir()
        self.refuse("train_file=", "train_file_dir=nowhere", says=["train_file_dir", "nowhere"])
        self.refuse("train_file=", "train_file_dir=empty", says=["train_file_dir", "empty", ".jsonl"])

    def test_nothing_to_train_on(self):
        self.refuse("train_file=", says=["train_file=FILE", "train_file_dir=FOLDER"])

    def test_a_folder_alone_is_enough(self):
        (self.work / "texts").mkdir()
        self.work.write_text(38, name="texts/a.txt")
        self.work.run("train_file=", "train_file_dir=texts", "output_dir=from_folder", ranks=2)

    def test_empty_file(self):
        (self.work / "empty.jsonl").write_text("")
        self.refuse("train_file=empty.jsonl", says=["empty.jsonl", "holds no data"], code=4)

    def test_evaluation_data(self):
        (self.work / "empty_eval.txt").write_text("")
        self.refuse("eval_strategy=steps", "eval_file=nowhere.txt", says=["eval_file", "nowhere.txt"])
        self.refuse("eval_strategy=steps", "eval_file=empty_eval.txt", says=["empty_eval.txt"], code=4)

    def test_bad_lines(self):
        cases = {"json": (b'{"text": \n', "invalid JSON"),
                 "utf8": (b'{"text": "\xff"}\n', "invalid UTF-8"),
                 "no_text": (b'{"txt": "a"}\n', '"text"')}
        for name, (line, says) in cases.items():
            with self.subTest(name):
                file = f"bad_{name}.jsonl"
                (self.work / file).write_bytes(GOOD_LINE + b"\n" + line + GOOD_LINE * 80)
                self.refuse(f"train_file={file}", says=[f"{file}:3: ", says, "bad_lines=skip"], code=4)
                ended = self.work.run(f"train_file={file}", "bad_lines=skip", f"output_dir={name}",
                                      ranks=2)
                self.assertIn("left 1 bad line out", ended.stderr)
                self.assertIn(f"{file}:3: ", ended.stderr)


class Tokenizer(BadInput):
    def write_tokenizer(self, name, text):
        self.work.write_model(llama(), name=name)
        (self.work / name / "tokenizer.json").write_text(text)

    def test_broken_file(self):
        self.write_tokenizer("broken", '{"model": {')
        self.refuse("model_name_or_path=broken", says=["broken/tokenizer.json", "invalid JSON"])

    def test_unsupported_type(self):
        self.write_tokenizer("unigram", json.dumps(
            {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
             "post_processor": None, "decoder": None, "model": {"type": "Unigram", "vocab": []}}))
        self.refuse("model_name_or_path=unigram", says=["unigram/tokenizer.json", "Unigram", "BPE"])

    def test_unknown_parts_are_named(self):
        self.work.write_model(llama(vocab_size=260), name="parts")
        self.work.write_tokenizer("parts")
        known = (self.work / "parts/tokenizer.json").read_text()
        for part, kind in {"normalizer": "Precompiled", "pre_tokenizer": "UnicodeScripts",
                           "post_processor": "LaterProcessing", "decoder": "CTC"}.items():
            with self.subTest(part):
                (self.work / "parts/tokenizer.json").write_text(json.dumps(json.loads(known) | {part: {"type": kind}}))
                self.refuse("model_name_or_path=parts", says=["parts/tokenizer.json", part, kind])

    def test_missing(self):
        self.refuse("tokenizer_name_or_path=nowhere", says=["nowhere", "skein tokenizer train"])

    def test_none_beside_weights_that_were_made_with_one(self):
        self.work.write_model(llama(vocab_size=600), name="wide")
        ended = self.work.run("model_name_or_path=wide", "output_dir=wide_run")
        note = "has no tokenizer.json: tokens are bytes, 257 of the model's 600 ids"
        self.assertIn(f"wide {note}", ended.stderr)
        words = self.work.command("model_name_or_path=wide_run", "train_from_scratch=false",
                                  "output_dir=wide_on")[1:]
        for command in ("train", "plan"):
            ended = run_skein([command, *words], self.work.folder, code=2)
            self.assertIn(f"wide_run {note}; give tokenizer_name_or_path=FOLDER", ended.stderr)
        run_skein(["train", *words, "tokenizer_name_or_path=bytes"], self.work.folder)
        command = ["eval", "wide_run", "--dataset", "text.txt"]
        self.assertIn("--tokenizer", run_skein(command, self.work.folder, code=2).stderr)
        run_skein([*command, "--tokenizer", "bytes"], self.work.folder)

    def test_vocabulary_larger_than_the_models(self):
        run_skein(["tokenizer", "train", "--input", "text.txt", "--vocab-size", "300", "--out", "large"],
                  self.work.folder)
        self.refuse("tokenizer_name_or_path=large", says=["vocab_size is 257", "300 ids"])


class Values(BadInput):
    def test_block_longer_than_the_model(self):
        self.work.write_model(gpt2(), name="gpt2")
        self.refuse("--fresh", "model_name_or_path=gpt2", "block_size=65",
                    says=["block_size is 65", "64 positions"])

    def test_batch_of_odd_size(self):
        self.refuse("global_batch_size=9", says=["global batch 9", "not a multiple of 2",
                                                 "ways to close it", "global_batch_size=8"])

    def test_fp16_with_bf16(self):
        self.refuse("fp16=true", "bf16=true", says=["fp16", "contradicts", "bf16"])

    def test_best_model_without_evaluation(self):
        self.refuse("load_best_model_at_end=true", says=["load_best_model_at_end", "eval_strategy"])

    def test_misspelt_flags(self):
        self.refuse("--nproc-pre-node", "2", says=["did you mean '--nproc-per-node'?"], ranks=None)
        self.refuse("--num_gpu", "2", says=["did you mean '--num_gpus'?"], ranks=None)
        self.refuse("--max-stpes", "2", says=["did you mean '--max-steps'?"])

    def test_misspelt_choice(self):
        self.refuse("bad_lines=ship", says=["bad_lines", "stop, skip", "did you mean 'skip'"])


class OtherCommands(BadInput):
    def refuse_command(self, *words, says, code=2):
        ended = run_skein(words, self.work.folder, code)
        self.assertEqual(ended.stdout, "")
        self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
        for part in says:
            self.assertIn(part, ended.stderr)

    def test_eval(self):
        self.refuse_command("eval", "nowhere", "--dataset", "text.txt", says=["'nowhere' does not exist"])
        self.refuse_command("eval", "out", "--dataset", "nowhere.txt", says=["nowhere.txt does not exist"])
        self.refuse_command("eval", "out", "--datset", "text.txt", says=["did you mean '--dataset'"])

    def test_eval_data(self):
        (self.work / "bad_eval.jsonl").write_bytes(GOOD_LINE + b"{\n" + GOOD_LINE * 9)
        command = ("eval", "out", "--dataset", "bad_eval.jsonl", "--data-cache-dir", "eval_cache")
        self.refuse_command(*command, says=["bad_eval.jsonl:2: ", "bad_lines=skip"], code=4)
        for words in (["--bad-lines", "skip"], ["bad_lines=skip"]):
            run_skein([*command, *words], self.work.folder)
        (self.work / "some").mkdir(exist_ok=True)
        self.work.write_text(3, name="some/a.txt")
        (self.work / "some/b.csv").write_text("x")
        ended = run_skein(["eval", "out", "--dataset", "some"], self.work.folder)
        self.assertIn("--dataset: 1 file of some left out", ended.stderr)
        self.refuse_command("eval", "out", "--dataset", "some/b.csv", says=["--dataset: ", "b.csv"])

    def test_flags_given_twice(self):
        self.refuse_command("eval", "out", "--dataset", "text.txt", "--dataset", "text.txt",
                            says=["--dataset is given twice"])

    def test_bench(self):
        self.refuse_command("bench", "trai", says=["did you mean 'train'"])
        self.refuse_command("bench", "train", "model", "--zero", "4", says=["--zero is 4"])
        self.refuse_command("bench", "train", "cache", says=["'cache' has no config.json"])
        self.refuse_command("bench", "train", "model", "--trace", "nowhere/t.json", says=["nowhere/t.json"],
                            code=4)
        self.refuse_command("bench", "train", "model", "--masked", "0.5", says=["give --packed too"])
        self.refuse_command("bench", "train", "model", "--packed", "--masked", "1", says=["--masked is 1"])
        self.refuse_command("bench", "train", "model", "--lora", "4", "--lora-target", "q_prj",
                            says=["no module 'q_prj'; did you mean 'q_proj'"])
        self.refuse_command("bench", "disk", "--path", "nowhere", code=4,
                            says=["there is no folder nowhere", "give --path=FOLDER"])
        self.refuse_command("bench", "disk", "--bytes", "999999999999999", code=4, says=["has no room for", "are free"])
        self.work.write_model(gpt2(), name="gpt2")
        self.refuse_command("bench", "train", "gpt2", "--tokens", "65",
                            says=["--tokens is 65, but the model knows 64 positions"])

    def test_launch_flags_in_a_file(self):
        (self.work / "launch.yaml").write_text("nproc_per_node: 2\n")
        self.refuse_command("train", "launch.yaml",
                            says=["launch.yaml:1", "a launch flag: give --nproc-per-node 2"])

    def test_data(self):
        self.refuse_command("data", "inspec", "c.yaml", says=["did you mean 'inspect'"])

    def test_generate(self):
        self.refuse_command("generate", "nowhere", "--prompt", "a", says=["'nowhere' does not exist"])
        self.refuse_command("generate", "out", "--promt", "a", says=["did you mean '--prompt'"])
        self.refuse_command("generate", "out", "--prompt", "a", "--max-length", "9",
                            says=["--max-new-tokens"])
        self.refuse_command("generate", "out", "--prompt", "a", "--do-sample", says=["--temperature 0"])
        run_skein(["tokenizer", "train", "--input", "text.txt", "--vocab-size", "257", "--out", "tok"],
                  self.work.folder)
        shutil.copytree(self.work / "out/checkpoint-2", self.work / "with_tokenizer", symlinks=True)
        shutil.copy(self.work / "tok/tokenizer.json", self.work / "with_tokenizer/tokenizer.json")
        (self.work / "gbk.txt").write_bytes(b"ab\n\xc4\xe3\n")
        self.refuse_command("generate", "with_tokenizer", "--prompt-file", "/dev/zero",
                            says=["--prompt-file: '/dev/zero' gives more than 256 MiB"])
        self.refuse_command("generate", "with_tokenizer", "--prompt-file", "gbk.txt",
                            says=["prompt 1:2: invalid UTF-8 at byte 1"], code=4)

    def test_tokenizer(self):
        self.refuse_command("tokenizer", "trian", says=["did you mean 'train'"])
        self.refuse_command("tokenizer", "train", "--input", "nowhere.txt", "--vocab-size", "300",
                            "--out", "made", says=["nowhere.txt"])
        self.assertFalse((self.work / "made").exists())
        for _ in range(2):
            run_skein(["tokenizer", "train", "--input", "text.txt", "--vocab-size", "300", "--out", "mine",
                       "--overwrite"], self.work.folder)
        self.refuse_command("tokenizer", "encode", "mine", "--text", "a", "--lines", says=["not both"])


class Shards(unittest.TestCase):
    """Files of one model that two runs have written, of the same shapes."""

    FILES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")

    def split(self, work, source, target):
        """A model folder with two files and an index, as others write it; returns who holds which tensor."""
        shutil.copytree(work / source, work / target)
        (work / target / "model.safetensors").unlink()
        tensors = read_safetensors(work / source / "model.safetensors")
        names = list(tensors)
        places = {name: self.FILES[index >= len(names) // 2] for index, name in enumerate(names)}
        for file in self.FILES:
            write_safetensors(work / target / file, {name: tensors[name] for name in names if places[name] == file})
        (work / target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        return places

    def test_only_a_manifest_tells_them_apart(self):
        with Workspace(max_steps=1, global_batch_size=8, report_to="none") as work:
            for output, seed in (("a", 1), ("b", 2)):
                work.run(f"output_dir={output}", f"seed={seed}")
                places = self.split(work, output, f"{output}2")
            words = ["train_from_scratch=false", "learning_rate=0", "weight_decay=0", "output_dir=next"]
            # As docs/checkpoint_format.md says: plain files do not tell which run they are of.
            shutil.copy(work / "b2" / self.FILES[1], work / "a2")
            work.run(*words, "model_name_or_path=a2")
            found = read_safetensors(work / "next/model.safetensors")
            runs = {file: read_safetensors(work / output / "model.safetensors")
                    for file, output in zip(self.FILES, "ab", strict=True)}
            for name, tensor in found.items():
                self.assertEqual(tensor, runs[places[name]][name], name)
            # A checkpoint has a manifest.
            shutil.copy(work / "b/checkpoint-1/model.safetensors", work / "a/checkpoint-1")
            ended = run_skein(["checkpoint", "verify", "a/checkpoint-1"], work.folder, 4)
            self.assertIn("checkpoint-1/model.safetensors, tensor lm_head.weight: bytes 2128 to", ended.stderr)
            ended = work.run(*words, "model_name_or_path=a/checkpoint-1", "--fresh", code=4)
            self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
            self.assertIn("a/checkpoint-1 is damaged: model.safetensors", ended.stderr)
            self.assertIn("are not those that were written", ended.stderr)

    def test_a_missing_one_is_named(self):
        with Workspace(max_steps=1, global_batch_size=8, report_to="none") as work:
            work.run("output_dir=a")
            self.split(work, "a", "a2")
            (work / "a2" / self.FILES[1]).unlink()
            ended = work.run("train_from_scratch=false", "model_name_or_path=a2", "output_dir=next", code=4)
            self.assertEqual(ended.stderr.count("error: "), 1, ended.stderr)
            self.assertIn(self.FILES[1], ended.stderr)


class OutputFolder(BadInput):
    def test_not_writable(self):
        if os.geteuid() != 0:  # whom no mode stops
            (self.work / "locked").mkdir(mode=0o500)
            self.refuse("output_dir=locked", says=["locked"], code=4)
        self.refuse("output_dir=/proc/skein", says=["/proc/skein"], code=4)

    def test_of_another_model(self):
        self.work.write_model(llama(hidden_size=64, num_hidden_layers=3), name="other")
        self.refuse("model_name_or_path=other",
                    says=["out/checkpoint-2", "hidden_size, num_hidden_layers differ", "--fresh"])

    def test_of_another_order(self):
        self.refuse("data_seed=7", "max_steps=3", says=["out/checkpoint-2", "data seed", "--fresh"])
        self.refuse("global_batch_size=4", "max_steps=3", says=["global batch size of 8", "has 4"])

    def test_not_to_be_continued(self):
        self.refuse("resume_from_checkpoint=false", says=["out holds checkpoints", "--fresh"])

    def test_no_such_checkpoint(self):
        self.refuse("resume_from_checkpoint=out/checkpoint-5", says=["there is no out/checkpoint-5"])
        self.refuse("resume_from_checkpoint=model", says=["model is not a whole checkpoint",
                                                          "manifest.json"])

    def test_fresh_keeps_the_old_run_when_the_new_one_is_refused(self):
        self.work.write_model(llama(vocab_size=100), name="small")
        self.refuse("--fresh", "model_name_or_path=nowhere", says=["nowhere", "config.json"])
        self.refuse("--fresh", "model_name_or_path=small", says=["vocab_size is 100"])
        self.refuse("--fresh", "train_from_scratch=false", says=["model.safetensors"])
        self.refuse("--fresh", "resume_from_checkpoint=out/latest", says=["would remove", "checkpoint-2"])


if __name__ == "__main__":
    unittest.main()
