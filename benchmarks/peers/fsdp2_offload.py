#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""One step of a 1.24B Llama under PyTorch's FSDP2 on one GPU, bf16 weights over fp32 parameters, fused AdamW, clipping:
without offload and with CPUOffloadPolicy. One JSON row each, for the ratio beside `benchmarks/gpu.py offload`."""
import json
import os
import time

import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

ROWS, TOKENS, STEPS, WARMUP = 4, 4096, 6, 2


def build(policy):
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=TOKENS, tie_word_embeddings=True, use_cache=False)
    config._attn_implementation = "sdpa"
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.model.layers:
        fully_shard(block, mp_policy=mixed, offload_policy=policy)
    fully_shard(model, mp_policy=mixed, offload_policy=policy)
    return model if isinstance(policy, CPUOffloadPolicy) else model.to("cuda")


def measure(name, policy):
    model = build(policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 128000, (ROWS, TOKENS), device="cuda")
    seconds = []
    for _ in range(WARMUP + STEPS):
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    median = sorted(seconds[WARMUP:])[STEPS // 2]
    print(json.dumps({"case": name, "milliseconds": round(median * 1e3, 1),
                      "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}), flush=True)


os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29511")
dist.init_process_group("cuda:nccl,cpu:gloo", rank=0, world_size=1)
torch.cuda.set_device(0)
measure("fsdp2", OffloadPolicy())
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
measure("fsdp2_offload", CPUOffloadPolicy(pin_memory=True))
dist.destroy_process_group()
