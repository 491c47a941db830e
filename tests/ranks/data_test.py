# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein data`: what it prepares, shows and refuses."""
import json
import struct
import subprocess
import unittest

from harness import ENVIRONMENT, SKEIN, Workspace, finish, run_skein


class Data(unittest.TestCase):
    def setUp(self):
        self.work = Workspace(data_cache_dir="cache", num_blocks=20)
        self.addCleanup(self.work.__exit__)

    def data(self, verb, *words, code=0):
        return run_skein(["data", verb, "c.yaml", *words], self.work.folder, code)

    def prepared(self):
        return sorted((self.work / "cache").glob("*.tokens"))

    def test_prepares_once(self):
        first = self.data("prepare")
        self.assertIn("621 tokens in 1 documents of 1 file", first.stdout)
        self.assertIn("20 of 20 blocks of 32 tokens", first.stdout)
        self.assertIn("prepared the train data", first.stderr)
        before = self.prepared()[0].stat().st_mtime_ns
        again = self.data("prepare")
        self.assertEqual(again.stdout, first.stdout)
        self.assertNotIn("prepared", again.stderr)
        self.assertEqual(self.prepared()[0].stat().st_mtime_ns, before)

    def test_threads_do_not_matter(self):
        lines = [json.dumps({"text": "é" * (i % 50)}) for i in range(1000)]
        (self.work / "a.jsonl").write_text("\n".join(lines))
        contents = set()
        for threads in (1, 4):
            self.data("prepare", "train_file=a.jsonl", "overwrite_cache=true",
                      f"preprocessing_num_workers={threads}")
            contents.add(self.prepared()[0].read_bytes())
        self.assertEqual(len(contents), 1)

    def test_two_at_once(self):
        (self.work / "big.txt").write_text("some words " * 500_000)
        command = [SKEIN, "data", "prepare", "c.yaml", "train_file=big.txt"]
        both = [subprocess.Popen(command, cwd=self.work.folder, env=ENVIRONMENT, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
        done = [finish(process, 0) for process in both]
        self.assertEqual(done[0].stdout, done[1].stdout)
        self.assertEqual(sum("prepared the train" in result.stderr for result in done), 1)
        self.assertEqual(len(self.prepared()), 1)
        self.assertEqual(list((self.work / "cache").glob("*.tmp")), [])

    def test_says_what_it_reads(self):
        (self.work / "texts").mkdir()
        self.work.write_text(20, name="texts/a.txt")
        (self.work / "texts/b.csv").write_text("x")
        shown = self.data("prepare", "train_file=", "train_file_dir=texts").stderr
        self.assertIn("note: train data: train_file_dir: 1 file of texts left out", shown)
        self.assertIn("b.csv", shown)
        self.assertIn("note: train data: model has no tokenizer.json: tokens are bytes", shown)
        self.assertNotIn("note", self.data("prepare", "tokenizer_name_or_path=bytes").stderr)

    def test_takes_the_words_of_train(self):
        self.data("prepare", "--nproc-per-node", "2")
        for verb in ("check", "show"):
            run_skein(["config", verb, "c.yaml", "--nproc-per-node", "2"], self.work.folder)

    def test_a_list_of_files(self):
        self.work.write_text(20, name="other.txt", seed=2)
        (self.work / "list.yaml").write_text("extends: c.yaml\ntrain_file: [text.txt, other.txt]\n")
        shown = run_skein(["data", "prepare", "list.yaml"], self.work.folder).stdout
        self.assertIn("of 2 files", shown)

    def test_64_bit_integers(self):
        (self.work / "wide.bin").write_bytes(struct.pack("<200q", *range(1, 201)))
        self.assertIn("astype(np.uint16)", self.data("prepare", "train_file=wide.bin", code=4).stderr)

    def test_inspects_rows(self):
        rows = self.data("inspect", "--rows", "2").stdout
        self.assertEqual(rows.count("sample "), 2)
        self.assertRegex(rows, r"sample \d+: 32 tokens, 31 trained on\n  ⟦[a-h ]⟧[a-h ]{31}\n")
        held_out = self.data("inspect", "--split=eval", "validation_split_percentage=10").stdout
        self.assertEqual(held_out.count("sample "), 2)
        self.assertIn("no evaluation data", self.data("inspect", "--split", "eval", code=2).stderr)

    def test_folder_with_both_splits(self):
        (self.work / "tokens").mkdir()
        (self.work / "tokens/train.bin").write_bytes(struct.pack("<640H", *range(640)))
        (self.work / "tokens/val.bin").write_bytes(struct.pack("<64H", *range(64)))
        shown = self.data("prepare", "train_file=tokens").stdout
        self.assertIn("train  640 tokens of 1 file", shown)
        self.assertIn("eval   64 tokens of 1 file", shown)

    def test_bad_lines(self):
        (self.work / "a.jsonl").write_text('{"text": "some text"}\n{"text": 1}\n')
        self.assertIn("a.jsonl:2:", self.data("prepare", "train_file=a.jsonl", code=4).stderr)
        skipped = self.data("prepare", "train_file=a.jsonl", "bad_lines=skip")
        self.assertIn("a.jsonl:2:", skipped.stderr)
        self.assertIn("1 bad lines left out", skipped.stdout)

    def test_refusals(self):
        self.assertIn("does not exist", self.data("prepare", "train_file=no.txt", code=2).stderr)
        self.assertIn("--rows", self.data("inspect", "--rows", "x", code=2).stderr)
        self.assertIn("no 'show'", self.data("show", code=2).stderr)
        (self.work / "empty.txt").write_text("")
        self.assertIn("no data", self.data("prepare", "train_file=empty.txt", code=4).stderr)


if __name__ == "__main__":
    unittest.main()
