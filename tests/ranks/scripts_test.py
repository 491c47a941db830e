# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The wrappers of scripts/: which words does each hand to skein? A stand-in for skein prints them. That
the lines they make really train is shown by other_guides_test.py."""
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from harness import ROOT, run_skein

SCRIPTS = ROOT / "scripts"


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="skein-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        self.skein = self.write_program("skein")

    def write_program(self, name, body='printf "%s\\n" "$0" "$@"'):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    def run_script(self, name, *words, code=0, scripts=SCRIPTS, **variables):
        """What the stand-in was called with; its name without the folder is the first word."""
        environment = {"PATH": f"{self.bin}:{os.defpath}", "SKEIN": str(self.skein)} | variables
        ended = subprocess.run(["bash", str(scripts / name), *words], env=environment, cwd=self.folder,
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.stderr = ended.stderr
        called, *rest = ended.stdout.splitlines() or [""]
        return [Path(called).name, *rest]


class FindSkein(Scripts):
    def test_variable_then_build_then_path(self):
        copy = self.folder / "copy"
        shutil.copytree(SCRIPTS, copy / "scripts")
        built = copy / "build/release/bin/skein"
        built.parent.mkdir(parents=True)
        shutil.copy(self.write_program("built"), built)
        script = ("train_ddp.sh", "a.yaml")
        called = {"scripts": copy / "scripts"}
        self.skein.write_text('#!/bin/bash\necho "from SKEIN or PATH"\n')
        self.assertEqual(self.run_script(*script, **called)[0], "from SKEIN or PATH")
        self.assertEqual(self.run_script(*script, **called, SKEIN="")[1], "train")
        built.unlink()
        self.assertEqual(self.run_script(*script, **called, SKEIN="")[0], "from SKEIN or PATH")
        self.skein.unlink()
        self.run_script(*script, **called, SKEIN="", code=2)
        self.assertIn("error: no skein: run 'make'", self.stderr)

    def test_the_built_one_answers(self):
        self.assertIn("skein train", run_skein(["train", "--help"], ROOT).stdout)
        ended = subprocess.run(["bash", SCRIPTS / "train_ddp.sh", "--help"], capture_output=True, text=True)
        self.assertIn("skein train", ended.stdout)


class RunDistributed(Scripts):
    def test_words_go_to_skein(self):
        words = self.run_script("run_distributed.sh", "--nproc_per_node", "4", "--nnodes", "2",
                                "--node_rank", "1", "--master_addr", "node a", "--master_port=29500",
                                "--config", "a b.yaml", "--algorithm", "sft")
        self.assertEqual(words, ["skein", "train", "--config", "a b.yaml", "--algorithm", "sft",
                                 "--nproc_per_node", "4", "--nnodes", "2", "--node_rank", "1",
                                 "--master_addr", "node a", "--master_port=29500"])

    def test_torchrun_gets_the_launch_flags(self):
        self.write_program("torchrun")
        words = self.run_script("run_distributed.sh", "--use_torchrun", "--nproc_per_node", "4",
                                "--config", "a.yaml", "--master-port=1")
        self.assertEqual(words, ["torchrun", "--nproc_per_node", "4", "--master-port=1", "--no-python",
                                 str(self.skein), "train", "--config", "a.yaml"])

    def test_without_torchrun_skein_starts_the_ranks(self):
        words = self.run_script("run_distributed.sh", "--use_torchrun", "--config", "a.yaml")
        self.assertEqual(words, ["skein", "train", "--config", "a.yaml"])
        self.assertIn("no torchrun on PATH", self.stderr)

    def test_a_flag_without_its_value_is_left_to_skein(self):
        words = self.run_script("run_distributed.sh", "--config", "a.yaml", "--nnodes")
        self.assertEqual(words, ["skein", "train", "--config", "a.yaml", "--nnodes"])

    def test_exit_code_is_skeins(self):
        self.write_program("skein", "exit 75")
        self.run_script("run_distributed.sh", "--config", "a.yaml", code=75)


class Positional(Scripts):
    def test_train_multi_gpu(self):
        words = self.run_script("train_multi_gpu.sh", "a b.yaml", "pretrain", "max_steps=3")
        self.assertEqual(words, ["skein", "train", "--config", "a b.yaml", "--stage", "pretrain",
                                 "max_steps=3"])

    def test_train_multi_gpu_needs_both(self):
        self.run_script("train_multi_gpu.sh", "a.yaml", code=2)
        self.assertIn("usage: train_multi_gpu.sh CONFIG STAGE", self.stderr)

    def test_train_ddp(self):
        words = self.run_script("train_ddp.sh", "a.yaml", "max_steps=3")
        self.assertEqual(words, ["skein", "train", "a.yaml", "max_steps=3", "--distributed_strategy", "ddp"])


class GradientsOnSeveralGpus(Scripts):
    name = "get_train_lora_grads_multi_gpu.sh"
    words = ("chat.jsonl", "warm", "out", "64", "sgd")

    def ranks(self, *more, name=name, **variables):
        called, *words = self.run_script(name, *self.words, *more, **variables)
        self.assertEqual(words[:10], ["gradients", "collect", "--train_file", "chat.jsonl", "--model", "warm", "--output_path",
                                      "out", "--gradient_projection_dimension", "64"])
        self.assertEqual((called, words[10:12]), ("skein", ["--gradient_type", "sgd"]))
        return words[words.index("--nproc-per-node") + 1]

    def test_no_more_ranks_than_visible_gpus(self):
        self.write_program("nvidia-smi", 'printf "GPU %s: A\\n" 0 1 2')
        for more, devices, count in (
                ((), None, "3"), (("2",), None, "2"), (("16",), None, "3"),
                ((), "5,7", "2"), (("1",), "5,7", "1"), (("4",), "GPU-8a1b,GPU-9c2d,GPU-0e3f", "3"), (("4",), "0", "1"),
                (("4",), "0,1,-1,2", "2"), (("4",), "", "4"), (("4",), "-1", "4")):  # all are hidden: ranks on CPUs
            with self.subTest(more=more, devices=devices):
                variables = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
                self.assertEqual(self.ranks(*more, **variables), count)

    def test_without_a_gpu_the_ranks_are_those_asked_for(self):
        self.assertEqual(self.ranks(), "8")
        self.assertEqual(self.ranks("3", "29501", "template=chatml"), "3")
        self.write_program("nvidia-smi", "echo no driver >&2; exit 9")
        self.assertEqual(self.ranks("3"), "3")

    def test_torchrun_is_capped_too(self):
        self.write_program("torchrun")
        self.write_program("nvidia-smi", 'printf "GPU %s: A\\n" 0 1')
        words = self.run_script("get_train_lora_grads_torchrun.sh", *self.words, "8", "29777", "template=chatml")
        self.assertEqual(words[:6], ["torchrun", "--nproc_per_node=2", "--master_port=29777", "--no-python", str(self.skein),
                                     "gradients"])
        self.assertEqual(words[-1], "template=chatml")


class SeveralMachines(Scripts):
    name = "torchrun_multi_node_multi_gpu.sh"

    def flags(self, *words, **variables):
        called, command, *rest = self.run_script(self.name, *words, **variables)
        self.assertEqual((called, command), ("skein", "train"))
        return rest

    def test_defaults(self):
        for devices, count in (("0,1,2,3,4,5", "4"), ("", None)):
            flags = self.flags(CUDA_VISIBLE_DEVICES=devices)
            recipe = flags[10:-2]
            self.assertEqual(flags[:2] if count else flags[:1], ["--nproc-per-node", count][:2 if count else 1])
            self.assertEqual(flags[2:10] + flags[-2:],
                             ["--nnodes", "1", "--node-rank", "0", "--master-addr", "localhost", "--master-port", "29500",
                              "--output_dir", "outputs/pretraining"])
            self.assertEqual([Path(word).name for word in recipe],
                             ["--config", "pretrain_offload.yaml"] if count else [])

    def test_the_environment(self):
        flags = self.flags("max_steps=3", "a=b c", NPROC_PER_NODE="8", WORLD_SIZE="2", NODE_RANK="1",
                           MASTER_ADDR="192.168.1.100", MASTER_PORT="29501", MODEL_PATH="my model",
                           TRAIN_FILE_DIR="my texts", CUDA_VISIBLE_DEVICES="0")
        self.assertEqual(flags, ["--nproc-per-node", "8", "--nnodes", "2", "--node-rank", "1",
                                 "--master-addr", "192.168.1.100", "--master-port", "29501",
                                 "--model_name_or_path", "my model", "--train_file_dir", "my texts",
                                 "max_steps=3", "a=b c"])

    def test_the_other_name_of_the_data_folder(self):
        self.assertIn("texts", self.flags(TRAIN_DATA_DIR="texts"))

    def test_four_ranks_or_fewer_gpus(self):
        self.write_program("nvidia-smi", "echo 'GPU 0: T4 (UUID: a)'; echo 'GPU 1: T4 (UUID: b)'")
        self.assertEqual(self.flags()[1], "2")
        self.assertEqual(self.flags(CUDA_VISIBLE_DEVICES="1")[1], "1")

    def test_four_ranks_or_fewer_cores(self):
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(self.flags(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="7")[1], str(min(4, cores)))


class Windows(unittest.TestCase):
    def test_the_batch_file_has_the_line_ends_that_windows_needs(self):
        text = (SCRIPTS / "train_multi_gpu.bat").read_bytes()
        self.assertEqual(text.count(b"\n"), text.count(b"\r\n"))
        self.assertIn(b"wsl.exe bash scripts/train_multi_gpu.sh", text)


if __name__ == "__main__":
    unittest.main()
