# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The same start in Python: torchrun, transformers and DDP up to the end of the first step on two CPU ranks."""
import sys
import time

import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM

dist.init_process_group("gloo")
torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]))
ddp = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-3)
tokens = torch.randint(0, 512, (4, 64))
loss = ddp(input_ids=tokens, labels=tokens).loss
loss.backward()
torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
optimizer.step()
if dist.get_rank() == 0:
    print(f"first_step {time.time()}", flush=True)
dist.destroy_process_group()
