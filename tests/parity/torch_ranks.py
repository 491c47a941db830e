# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""One rank of torch's DDP, FSDP2 or DeepSpeed's ZeRO, on CPUs over Gloo; sharded_train_test.py starts several with torchrun.

  torch_ranks.py MODEL TOKENS OUT WAY…    for each way OUT/WAY.json (losses, norms) and OUT/WAY.safetensors (weights)

Every rank takes the same number of the data's blocks, all of them in each step.
"""
import importlib
import json
import os
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import numpy
import torch
import torch.distributed as dist
import transformers
from safetensors.torch import save_file
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from train_test import BLOCK, SETTINGS, load_model, make_optimizer, mean_loss


def scheduler_of(optimizer):
    return transformers.get_scheduler("linear", optimizer, num_warmup_steps=SETTINGS["warmup_steps"],
                                      num_training_steps=SETTINGS["max_steps"])


class Torch:
    """DDP, and FSDP2 with every block and the whole sharded."""

    def __init__(self, model, way):
        self.model = model
        if way == "fsdp2":
            for layer in model.model.layers:
                fully_shard(layer)
            fully_shard(model)
            self.optimizer = make_optimizer(model, SETTINGS)
            self.forward = model
        else:
            self.optimizer = make_optimizer(model, SETTINGS)
            self.forward = torch.nn.parallel.DistributedDataParallel(model)
        self.scheduler = scheduler_of(self.optimizer)

    def step(self, blocks):
        loss = mean_loss(self.forward, blocks)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), SETTINGS["max_grad_norm"])
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.detach(), norm.full_tensor() if isinstance(norm, DTensor) else norm


class DeepSpeed:
    """ZeRO 1 and 2, with torch's AdamW inside."""

    def __init__(self, model, way):
        import deepspeed
        # Sums through shared memory, which it would compile first, for a minute.
        importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
        self.model = model
        optimizer = make_optimizer(model, SETTINGS)
        self.engine, _, _, _ = deepspeed.initialize(
            model=model, optimizer=optimizer, lr_scheduler=scheduler_of(optimizer),
            config={"train_micro_batch_size_per_gpu": 1, "gradient_clipping": SETTINGS["max_grad_norm"],
                    "zero_allow_untested_optimizer": True,
                    "zero_optimization": {"stage": int(way[-1]), "reduce_scatter": True}})
        assert self.engine.zero_optimization_stage() == int(way[-1])

    def step(self, blocks):
        loss = mean_loss(self.engine, blocks)
        self.engine.backward(loss)
        self.engine.step()
        return loss.detach(), torch.as_tensor(self.engine.get_global_grad_norm())


def whole(tensor):
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return tensor.detach().clone()


def run(way, folder, blocks, out):
    trained = (DeepSpeed if way.startswith("deepspeed") else Torch)(load_model(folder, "float32"), way)
    losses, norms = [], []
    for _ in range(SETTINGS["max_steps"]):
        loss, norm = trained.step(blocks)
        dist.all_reduce(loss)
        losses.append(loss.item() / dist.get_world_size())
        norms.append(norm.item())
    weights = {name: whole(parameter) for name, parameter in trained.model.named_parameters()}
    if dist.get_rank() == 0:
        save_file(weights, out / f"{way}.safetensors")
        (out / f"{way}.json").write_text(json.dumps({"loss": losses, "grad_norm": norms}))


def main(folder, tokens, out, *ways):
    dist.init_process_group("gloo")
    blocks = torch.from_numpy(numpy.fromfile(tokens, "<u2").astype("int64")).split(BLOCK)
    share = len(blocks) // dist.get_world_size()
    own = blocks[dist.get_rank() * share:(dist.get_rank() + 1) * share]
    for way in ways:
        run(way, folder, own, Path(out))
    dist.destroy_process_group()


main(*sys.argv[1:])
sys.stdout.flush()
sys.stderr.flush()
# All is written. Threads that the libraries leave behind may abort a process that takes itself down in the usual way.
os._exit(0)
