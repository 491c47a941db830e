# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The same steps in Python, two CPU ranks over Gloo: DDP, FSDP2 that keeps weights whole between forward and backward
(gradients and states sharded: ZeRO-2), FSDP2 that does not (ZeRO-3).

  torchrun --nproc-per-node 2 strategies.py MODEL ROWS TOKENS STEPS WARMUP KIND...

Rank 0 prints one JSON object: the median seconds of a step by kind.
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM

folder, rows, tokens, steps, warmup = sys.argv[1], *map(int, sys.argv[2:6])


def wrap(model, kind):
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, reshard_after_forward=kind == "fsdp2_zero3")
    return fully_shard(model, mesh=mesh, reshard_after_forward=kind == "fsdp2_zero3")


def measure(kind):
    torch.manual_seed(1)
    model = wrap(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="sdpa"), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    text = torch.randint(0, model.config.vocab_size if kind != "ddp" else model.module.config.vocab_size,
                         (rows, tokens), generator=generator)
    seconds, losses = [], []
    for _ in range(warmup + steps):
        begin = time.perf_counter()
        loss = model(input_ids=text, labels=text, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    if not losses[-1] < losses[0]:
        sys.exit(f"{kind}: the loss did not fall")
    return statistics.median(seconds[warmup:])


dist.init_process_group("gloo")
result = {kind: measure(kind) for kind in sys.argv[6:]}
if dist.get_rank() == 0:
    print(json.dumps(result), flush=True)
dist.destroy_process_group()
