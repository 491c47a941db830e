# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Kills `skein gradients collect` at random instants and lets it go on, with other numbers of ranks; the merged rows must be
those of a collection that nobody disturbed.

  with Collection() as collection:
      print(collection.play(seed=3))
"""
import os
import random
import re
import shutil
import signal
import time

from harness import ChatWorkspace, children, finish, run_skein, start_skein, wait_until_gone
from kills import environment_of, processes_in

KINDS = ("rank", "all", "launcher")
MOST_KILLS = 3  # of one collection


class Collection:
    """An adapter after two updates, with its moments; rows of the data it was trained on."""

    def __init__(self, num_rows=37):
        self.work = ChatWorkspace(num_rows=num_rows, per_device_train_batch_size=2)
        self.work.run("output_dir=base", "max_steps=2", "save_strategy=no")
        self.work.run("output_dir=warm", "model_name_or_path=base", "train_from_scratch=false", "finetuning_type=lora",
                      "lora_rank=4", "max_steps=2", "save_steps=1")
        self.num_blocks = (num_rows + 1) // 2
        self.whole = None  # the merged rows

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.work.folder)

    def words(self, output, ranks, strategy):
        return ["gradients", "collect", "--train_file", "chat.jsonl", "--template", "chatml", "--model", "warm/checkpoint-2",
                "--output_path", output, "--gradient_projection_dimension", "256", "--block_samples", "2", "--max_length",
                "128", "--batch_tokens", "150", "device=cpu", "--nproc-per-node", ranks, f"distributed_strategy={strategy}"]

    def merged(self, output):
        run_skein(["gradients", "merge", output], self.work.folder)
        return (self.work / output / "gradients.safetensors").read_bytes()

    def undisturbed(self):
        if self.whole is None:
            run_skein(self.words("whole", 1, "ddp"), self.work.folder, 0)
            self.whole = self.merged("whole")
        return self.whole

    def blocks_in(self, output):
        return len(list((self.work / output).glob("**/block-*.safetensors")))

    def play(self, seed):
        """What happened, in words; raises AssertionError where the end is another one."""
        draw = random.Random(seed)
        whole = self.undisturbed()
        output = f"seed-{seed}"
        told = []
        for i in range(draw.randint(1, MOST_KILLS)):
            kind = KINDS[(seed + i) % len(KINDS)]
            ranks, strategy = draw.randint(1, 4), draw.choice(("ddp", "ddp", "zero3"))
            told.append(f"{kind} of {ranks} {strategy}: {self.disturb(output, kind, ranks, strategy, draw)}")
        ranks = draw.randint(1, 4)
        run_skein(self.words(output, ranks, "ddp"), self.work.folder, 0)
        if self.merged(output) != whole:
            raise AssertionError(f"seed {seed}: other rows after {'; '.join(told)}")
        shutil.rmtree(self.work / output)
        return "; ".join([*told, f"then {ranks}: equal"])

    def disturb(self, output, kind, ranks, strategy, draw):
        before = self.blocks_in(output)
        process = start_skein(self.words(output, ranks, strategy), self.work.folder)
        # Until so many blocks are there, and a moment more.
        wanted = draw.randint(min(before, self.num_blocks - 1), self.num_blocks - 1)
        while process.poll() is None and self.blocks_in(output) <= wanted:
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.02))
        found = [pid for pid in children(process.pid) if re.search(rb"(?:^|\0)RANK=\d", environment_of(pid))]
        victims = {"rank": found and [draw.choice(found)], "all": [*found, process.pid], "launcher": [process.pid]}[kind]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was faster
        ended = finish(process)
        left = wait_until_gone(processes_in(self.work.folder), 20)
        if left:
            raise AssertionError(f"{left} outlived their launcher\n{ended.stderr}")
        return f"{self.blocks_in(output)} blocks, ended with {ended.returncode}"
