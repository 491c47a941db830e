# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""The same run under the launchers of torch, accelerate and deepspeed as under skein's own: equal bytes.

What needs their variables only is in tests/ranks/foreign_test.py."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import write_tokens

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ranks"))
from harness import free_port  # noqa: E402

BIN = Path(sys.executable).parent
RANKS = 2


def torchrun(port):
    return [BIN / "torchrun", "--no-python", "--nproc-per-node", RANKS, "--master-port", port]


def torchrun_standalone(_):
    return [BIN / "torchrun", "--standalone", "--no-python", "--nproc-per-node", RANKS]


def torch_launch(port):
    return [sys.executable, "-m", "torch.distributed.launch", "--use-env", "--no-python",
            "--nproc-per-node", RANKS, "--master-port", port]


def accelerate(port):
    # --cpu would start one process; --multi_gpu is its torchrun, which needs no GPU to start ranks.
    return [BIN / "accelerate", "launch", "--no_python", "--multi_gpu", "--num_processes", RANKS,
            "--num_machines", 1, "--mixed_precision", "no", "--dynamo_backend", "no",
            "--main_process_port", port]


def deepspeed(port):
    # --local_rank=N comes along, before the command.
    return [BIN / "deepspeed", "--no_python", "--num_gpus", RANKS, "--master_port", port]


@pytest.fixture
def recipe(tiny_llama, tmp_path):
    """c.yaml and its data in tmp_path."""
    write_tokens(tmp_path / "tokens.bin", 38 * 32)
    keys = dict(model_name_or_path=str(tiny_llama), train_file="tokens.bin", block_size=32,
                device="cpu", max_steps=4, global_batch_size=8, save_steps=2, logging_steps=1)
    (tmp_path / "c.yaml").write_text(json.dumps(keys))
    return tmp_path


def environment():
    return os.environ | {"OMP_NUM_THREADS": "1", "MKL_DYNAMIC": "FALSE", "MKL_CBWR": "AUTO"}


def start(launcher, skein, folder, *words):
    command = [*map(str, launcher(free_port())), str(skein), "train", "c.yaml", *words]
    return subprocess.Popen(command, cwd=folder, env=environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def finish(process, timeout=180):
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        raise AssertionError(f"{process.args} still ran after {timeout} s\n{stderr}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def ranks_below(pid):
    """Process ids of skein-worker below this process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    def is_below(each):
        while each in parents and each != pid:
            each = parents[each]
        return each == pid
    found = []
    for each in filter(is_below, parents):
        try:
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"skein-worker"):
            found.append(each)
    return sorted(found)


def wait_for_step(folder, output, step):
    give_up = time.monotonic() + 120
    log = folder / output / "trainer_log.jsonl"
    while not log.exists() or log.read_bytes().count(b"\n") < step:
        assert time.monotonic() < give_up, f"no step {step}"
        time.sleep(0.01)


@pytest.mark.parametrize("launcher", [torchrun, torchrun_standalone, torch_launch, accelerate,
                                      deepspeed],
                         ids=lambda launcher: launcher.__name__)
def test_equal_bytes(launcher, recipe, skein, run_skein):
    run_skein(["train", "c.yaml", "output_dir=own", "--nproc-per-node", RANKS], recipe)
    ended = finish(start(launcher, skein, recipe, "output_dir=out"))
    assert ended.returncode == 0, ended.stderr
    assert f"rank 0 of {RANKS}" in ended.stderr
    own, other = [(recipe / output / "model.safetensors").read_bytes() for output in ("own", "out")]
    assert own == other


def test_torchrun_shows_the_message(recipe, skein):
    """A rank's own words instead of "to enable traceback see"."""
    ended = finish(start(torchrun, skein, recipe, "output_dir=out", "global_batch_size=9"))
    assert ended.returncode != 0
    summary = ended.stderr[ended.stderr.index("Root Cause"):]
    assert "global batch 9" in summary, ended.stderr
    assert "exitcode  : 2" in summary


def test_kill_under_torchrun(recipe, skein):
    process = start(torchrun, skein, recipe, "output_dir=out", "max_steps=100000",
                    "save_steps=100000")
    wait_for_step(recipe, "out", 3)
    ranks = ranks_below(process.pid)
    assert len(ranks) == RANKS
    os.kill(ranks[1], signal.SIGKILL)
    ended = finish(process, timeout=60)
    assert ended.returncode != 0
    assert [rank for rank in ranks if Path(f"/proc/{rank}").exists()] == []


def test_restart_is_torchruns(recipe, skein):
    """The agent's store lives on over its restarts: a second attempt must not read the first one's
    keys, and continues the run, whatever the first was told."""
    process = start(lambda port: [*torchrun(port), "--max-restarts", 1], skein, recipe,
                    "output_dir=out", "max_steps=60", "save_steps=5", "--fresh")
    wait_for_step(recipe, "out", 12)
    os.kill(ranks_below(process.pid)[0], signal.SIGKILL)
    ended = finish(process)
    assert ended.returncode == 0, ended.stderr
    assert "resum" in ended.stderr or "contin" in ended.stderr, ended.stderr
    finish(start(torchrun, skein, recipe, "output_dir=whole", "max_steps=60", "save_steps=5"))
    whole, parts = [(recipe / output / "model.safetensors").read_bytes()
                    for output in ("whole", "out")]
    assert whole == parts
