# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Bytes that a step sends, against what the stage promises.

Every run has a network namespace of its own, whose loopback carries nothing else. Ranks of one machine
share memory and send next to nothing over it, so that their stages are counted without. A longer run less
a shorter one leaves the steps alone: start, save and end cancel.
"""
import os
import re
import subprocess
import unittest

from harness import Workspace, llama, num_elements, read_safetensors, run_skein

SHORT, LONG = 2, 6
# More than 64 Ki elements in each unit: messages of a step that do not grow with the model vanish.
MODEL = llama(hidden_size=128, intermediate_size=256, vocab_size=600)
# Who is not root may be root of a namespace.
UNSHARE = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
# The counter is written once all ranks have ended; the exit code stays skein's.
SCRIPT = 'ip link set lo up && "$@"; code=$?; cat /proc/net/dev > traffic; exit $code'


# Adapters that are as large: what is left of the control traffic is small beside them too.
ADAPTERS = {"finetuning_type": "lora", "lora_rank": 128, "model_name_or_path": "base", "train_from_scratch": False,
            "tokenizer_name_or_path": "bytes"}


def promised(units, stage, accumulation):
    """Elements that a rank sends, before the factor (N-1)/N. `units`: (trainable, frozen) of the roots and of each block."""
    (root, frozen_root), *blocks = units
    trainable = root + sum(trains for trains, _ in blocks)
    if stage < 2:
        return 2 * trainable
    if stage == 2:
        return (accumulation + 1) * trainable
    # Gathered for forward and for backward, the last block for both at once; what trains is reduced.
    sent = sum(2 * (trains + frozen) + trains for trains, frozen in blocks) - sum(blocks[-1])
    return accumulation * sent + 2 * root + frozen_root


class Traffic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        probe = subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
        if probe.returncode != 0:
            raise AssertionError("counting bytes needs a network namespace (run as root, or allow user "
                                 f"namespaces): {probe.stderr.strip()}")

    def bytes_sent(self, work, steps, ranks, stage, accumulation, shared_memory=0):
        words = ["output_dir=out", "--fresh", f"max_steps={steps}", "per_device_train_batch_size=1",
                 f"gradient_accumulation_steps={accumulation}",
                 f"distributed_strategy={('ddp', 'zero1', 'zero2', 'zero3')[stage]}"]
        run_skein(work.command(*words, ranks=ranks), work.folder,
                  prefix=["env", f"SKEIN_SHARED_MEMORY={shared_memory}", *UNSHARE, "sh", "-c", SCRIPT, "sh"])
        for line in (work / "traffic").read_text().splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == "lo":
                return int(counters.split()[8])  # transmitted bytes
        raise AssertionError("no loopback in /proc/net/dev")

    def units(self, work):
        """Of the adapters where there are some, and of the model."""
        folder = "base" if "finetuning_type" in work.keys else "out"
        trains = {name: shape for name, (_, shape, _) in read_safetensors(work / folder / "model.safetensors").items()}
        frozen = {}
        if folder == "base":
            frozen = trains
            trains = {name: shape for name, (_, shape, _) in
                      read_safetensors(work / "out/adapter_model.safetensors").items()}
        sums = [[0, 0] for _ in range(1 + MODEL["num_hidden_layers"])]
        for place, shapes in enumerate((trains, frozen)):
            for name, shape in shapes.items():
                block = re.search(r"\.layers\.(\d+)\.", name)
                sums[1 + int(block[1]) if block else 0][place] += num_elements(shape)
        return sums

    def check(self, ranks, accumulation, **keys):
        with Workspace(MODEL, num_blocks=100, block_size=16, logging_steps=1000) as work:
            if keys:
                work.run("output_dir=base", "max_steps=1", "save_strategy=no")
                work.keys |= keys
                work.write_recipe(work.keys)
            for stage in range(4):
                with self.subTest(stage=stage):
                    sent = (self.bytes_sent(work, LONG, ranks, stage, accumulation)
                            - self.bytes_sent(work, SHORT, ranks, stage, accumulation)) / (LONG - SHORT)
                    # N ranks with a factor of (N-1)/N each, 4 bytes an element.
                    limit = 4 * (ranks - 1) * promised(self.units(work), stage, accumulation)
                    print(f"{ranks} ranks, stage {stage}, accumulation {accumulation}: {sent:.0f} bytes "
                          f"a step, {sent / limit:.4f} of the formula")
                    self.assertLess(sent, 1.05 * limit)
                    self.assertGreater(sent, 0.5 * limit, "the counter does not see the ranks")

    def test_2_ranks(self):
        self.check(ranks=2, accumulation=1)

    def test_2_ranks_accumulating(self):
        self.check(ranks=2, accumulation=4)

    def test_3_ranks(self):
        self.check(ranks=3, accumulation=1)

    def test_3_ranks_accumulating(self):
        self.check(ranks=3, accumulation=4)

    def test_adapters(self):
        self.check(ranks=2, accumulation=1, **ADAPTERS)

    def test_adapters_accumulating(self):
        self.check(ranks=2, accumulation=4, **ADAPTERS)

    def test_shared_memory_sends_nothing_and_gives_the_same_model(self):
        with Workspace(MODEL, num_blocks=100, block_size=16, logging_steps=1000) as work:
            models, sent = [], []
            for shared_memory in (0, 1):
                sent.append(self.bytes_sent(work, LONG, 3, stage=3, accumulation=2, shared_memory=shared_memory))
                models.append((work / "out/model.safetensors").read_bytes())
            print(f"3 ranks, stage 3: {sent[0]} bytes over sockets, {sent[1]} with shared memory")
            self.assertLess(sent[1], sent[0] / 10)
            self.assertEqual(models[0], models[1])


if __name__ == "__main__":
    unittest.main()
