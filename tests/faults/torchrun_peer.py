# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The script that torchrun starts for tests/faults/detection.py: data-parallel training on gloo,
written as carefully as torch allows: saved atomically every four steps, continued where it was.

  torchrun --standalone --nproc-per-node 2 --max-restarts 3 torchrun_peer.py STATE_FILE
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAVE_EVERY = 4


def main(path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # With init_process_group("gloo") alone a restart finds the addresses of the ranks before it in
    # the agent's store and gives up after "Connection refused": a prefix of its own avoids that.
    agent = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    generation = f"{os.environ['TORCHELASTIC_RESTART_COUNT']}-{os.environ['TORCHELASTIC_RUN_ID']}"
    dist.init_process_group("gloo", store=dist.PrefixStore(generation, agent),
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    model = torch.nn.Sequential(torch.nn.Embedding(257, 32), torch.nn.Linear(32, 257))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if os.path.exists(path):
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    parallel = DistributedDataParallel(model)
    while step < 100_000:
        tokens = torch.randint(257, (12, 33))
        loss = torch.nn.functional.cross_entropy(parallel(tokens[:, :-1]).flatten(0, 1),
                                                 tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            if step % SAVE_EVERY == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                            "step": step}, path + ".tmp")
                os.replace(path + ".tmp", path)
            print(f"step {step}/100000 ", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
