# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Schedules and loss scalers, number by number, against DeepSpeed's and PyTorch's own.

The package is a 0.19. What 0.16 did otherwise is changed in a copy of the class that holds it."""
import json
import logging
import math
import random
import subprocess

import pytest
import torch

from conftest import BUILD, write_tokens

from deepspeed.runtime import lr_schedules as deepspeed_schedules
from deepspeed.runtime.fp16 import loss_scaler as deepspeed_scaler

logging.getLogger("DeepSpeed").setLevel(logging.ERROR)

TOTAL = 40
UPDATES = 70  # also beyond the end
RATE = 7e-4


def trace(*words):
    ended = subprocess.run([BUILD / "tests/plan_trace", *map(str, words)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return [line if line == "end" else float(line) for line in ended.stdout.split()]


def deepspeed_rates(scheduler, updates=UPDATES, rate=RATE):
    """What the optimizer of update 0, 1, … sees: DeepSpeed's engine moves the schedule after each."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    schedule = scheduler(optimizer)
    rates = []
    for _ in range(updates):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    return rates


class Cosine016(deepspeed_schedules.WarmupCosineLR):
    """0.16 has no end: it goes on along the wave."""

    def get_lr_ratio(self):
        if self.last_batch_iteration < self.warmup_num_steps:
            return super().get_lr_ratio()
        done = self.last_batch_iteration - self.warmup_num_steps + 1
        wave = (1 + math.cos(math.pi * done / (self.total_num_steps - self.warmup_num_steps))) / 2
        return max(0.0, self.cos_min_ratio + (1 - self.cos_min_ratio) * wave)


WARMUPS = {"two": 2, "few": 9, "all": TOTAL, "beyond": 60}
CURVES = {"log": {"warmup_type": "log"}, "linear": {"warmup_type": "linear"}, "unsaid": {}}


@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("curve", CURVES)
def test_warmup(warmup, curve):
    count, extra = WARMUPS[warmup], CURVES[curve]
    words = [f"learning_rate={RATE}", f"max_steps={TOTAL}", f"warmup_steps={count}",
             *(f"{key}={value}" for key, value in extra.items())]
    plain = deepspeed_rates(lambda o: deepspeed_schedules.WarmupLR(
        o, warmup_min_lr=1e-5, warmup_max_lr=RATE, warmup_num_steps=count, **extra))
    assert trace("rates", UPDATES, "lr_scheduler_type=WarmupLR", "warmup_min_lr=1e-5",
                 *words) == pytest.approx(plain, rel=1e-12, abs=0)
    decay = deepspeed_rates(lambda o: deepspeed_schedules.WarmupDecayLR(
        o, TOTAL, warmup_min_lr=1e-5, warmup_max_lr=RATE, warmup_num_steps=count, **extra))
    assert trace("rates", UPDATES, "lr_scheduler_type=WarmupDecayLR", "warmup_min_lr=1e-5",
                 *words) == pytest.approx(decay, rel=1e-12, abs=0)
    cosine = deepspeed_rates(lambda o: deepspeed_schedules.WarmupCosineLR(
        o, TOTAL, warmup_min_ratio=0.1, warmup_num_steps=count, cos_min_ratio=0.02, **extra))
    words += ["lr_scheduler_type=WarmupCosineLR", "warmup_min_ratio=0.1", "cos_min_ratio=0.02"]
    assert trace("rates", UPDATES, *words) == pytest.approx(cosine, rel=1e-12, abs=0)
    if count < TOTAL:  # 0.16 divides by zero where nothing is left
        older = deepspeed_rates(lambda o: Cosine016(
            o, TOTAL, warmup_min_ratio=0.1, warmup_num_steps=count, cos_min_ratio=0.02, **extra))
        assert older != pytest.approx(cosine)
        assert trace("rates", UPDATES, *words, "ds_compat=0.16") == pytest.approx(older, rel=1e-12, abs=0)


def test_a_warmup_of_none_or_one_is_one_of_two():
    """DeepSpeed 0.19 refuses 0; 0.16 takes 2, and so do we."""
    expected = deepspeed_rates(lambda o: deepspeed_schedules.WarmupLR(
        o, warmup_max_lr=RATE, warmup_num_steps=1))
    for count in (0, 1):
        found = trace("rates", UPDATES, "lr_scheduler_type=WarmupLR", f"learning_rate={RATE}",
                      f"max_steps={TOTAL}", f"warmup_steps={count}")
        assert found == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("keys", [
    dict(cycle_first_step_size=10),
    dict(cycle_first_step_size=7, cycle_second_step_size=13),
    dict(cycle_first_step_size=7, cycle_second_step_size=0),
    dict(cycle_first_step_size=12, cycle_second_step_size=7, cycle_first_stair_count=5),
    dict(cycle_first_step_size=9, cycle_second_step_size=11, cycle_first_stair_count=3,
         cycle_second_stair_count=4, decay_step_size=5, decay_lr_rate=0.5),
], ids=["even", "uneven", "no_fall", "stairs", "stairs_and_decay"])
def test_one_cycle(keys):
    expected = deepspeed_rates(lambda o: deepspeed_schedules.OneCycle(
        o, cycle_min_lr=1e-5, cycle_max_lr=RATE, cycle_momentum=False, **keys))
    found = trace("rates", UPDATES, "lr_scheduler_type=OneCycle", f"learning_rate={RATE}",
                  f"max_steps={TOTAL}", "cycle_min_lr=1e-5", *(f"{k}={v}" for k, v in keys.items()))
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


@pytest.mark.parametrize("staircase", [False, True])
def test_range_test(staircase):
    expected = deepspeed_rates(lambda o: deepspeed_schedules.LRRangeTest(
        o, lr_range_test_min_lr=RATE, lr_range_test_step_size=6, lr_range_test_step_rate=2.5,
        lr_range_test_staircase=staircase))
    found = trace("rates", UPDATES, "lr_scheduler_type=LRRangeTest", f"learning_rate={RATE}",
                  f"max_steps={TOTAL}", "lr_range_test_step_size=6", "lr_range_test_step_rate=2.5",
                  f"lr_range_test_staircase={str(staircase).lower()}")
    assert found == pytest.approx(expected, rel=1e-12, abs=0)


def test_a_run_with_a_deepspeed_file(tiny_gpt2, train, tmp_path):
    """The same through `skein train`, defaults of the file included."""
    write_tokens(tmp_path / "tokens.bin", 16)
    (tmp_path / "ds.json").write_text(json.dumps({
        "optimizer": {"type": "AdamW", "params": {"lr": 1.0}},
        "scheduler": {"type": "WarmupDecayLR",
                      "params": {"warmup_max_lr": RATE, "warmup_num_steps": 3, "total_num_steps": "auto"}},
        "steps_per_print": 1}))
    records = train("out", model_name_or_path=tiny_gpt2, train_file=tmp_path / "tokens.bin", block_size=8,
                    max_steps=12, save_strategy="no", report_to="none", deepspeed=tmp_path / "ds.json")
    expected = deepspeed_rates(lambda o: deepspeed_schedules.WarmupDecayLR(
        o, 12, warmup_max_lr=RATE, warmup_num_steps=3), updates=12)
    assert [record["learning_rate"] for record in records] == pytest.approx(expected, rel=1e-12, abs=0)


STEPS = 2000


def overflows(kind):
    """'x' where a step overflows."""
    draw = random.Random(kind)
    share = {"none": 0, "rare": 0.003, "many": 0.1, "bursts": 0.01}[kind]
    steps = ["x" if draw.random() < share else "." for _ in range(STEPS)]
    if kind == "bursts":
        for begin in range(100, STEPS, 450):
            steps[begin:begin + 4] = "xxxx"
    return "".join(steps)


@pytest.mark.parametrize("window", [7, 100, 2000])
@pytest.mark.parametrize("kind", ["none", "rare", "many", "bursts"])
def test_pytorch_scaler(kind, window):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 16, growth_interval=window)
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    expected = []
    for step in overflows(kind):
        scaler.scale(torch.zeros(()))  # makes its state
        parameter.grad = torch.full((1,), math.inf if step == "x" else 1.0)
        scaler.step(optimizer)
        scaler.update()
        expected.append(scaler.get_scale())
        if expected[-1] <= 2.0 ** -16:  # where skein ends a run
            break
    found = trace("scales", overflows(kind), f"loss_scale_window={window}")
    assert found[:len(expected)] == expected


class Scaler016(deepspeed_scaler.DynamicLossScaler):
    """0.16 counts a window from the overflow itself."""

    def update_scale(self, overflow):
        if overflow:
            return super().update_scale(True)
        if self.consecutive_hysteresis:
            self.cur_hysteresis = self.delayed_shift
        if (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            if not self.consecutive_hysteresis:
                self.cur_hysteresis = self.delayed_shift
            self.cur_scale *= self.scale_factor
        self.cur_iter += 1


@pytest.mark.parametrize("compat,kind_of_scaler", [("0.16", Scaler016),
                                                   ("0.19", deepspeed_scaler.DynamicLossScaler)])
@pytest.mark.parametrize("consecutive", [False, True])
@pytest.mark.parametrize("hysteresis", [1, 2, 4])
@pytest.mark.parametrize("kind", ["none", "rare", "many", "bursts"])
def test_deepspeed_scaler(kind, hysteresis, consecutive, compat, kind_of_scaler, monkeypatch):
    monkeypatch.setattr(deepspeed_scaler.dist, "get_rank", lambda: 1)
    scaler = kind_of_scaler(init_scale=2.0 ** 16, scale_window=50, min_scale=0.25, delayed_shift=hysteresis,
                            consecutive_hysteresis=consecutive)
    expected = []
    for step in overflows(kind):
        try:
            scaler.update_scale(step == "x")
        except Exception as error:
            assert "already at minimum" in str(error)
            expected.append("end")
            break
        expected.append(scaler.cur_scale)
    found = trace("scales", overflows(kind), "loss_scaler=deepspeed", "loss_scale_window=50",
                  "min_loss_scale=0.25", f"hysteresis={hysteresis}", f"ds_compat={compat}",
                  f"consecutive_hysteresis={str(consecutive).lower()}")
    # DeepSpeed's scale has no upper end; ours stays a float's.
    capped = [scale if scale == "end" else min(scale, 2.0 ** 127) for scale in expected]
    assert found == capped
    assert len(found) == STEPS or found[-1] == "end"
