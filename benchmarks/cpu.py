#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""CPU figures of skein, each beside its peer or its limit, one JSON row per case.

  benchmarks/cpu.py scaling      2 ranks x 1 thread against two runs of 1 rank x 1 thread side by side, and against twice
                                 one such run alone; compute-bound
  benchmarks/cpu.py start        exec to first step of a 2-rank run, beside torchrun and transformers
  benchmarks/cpu.py checkpoint   the stall of a save beside the step time
  benchmarks/cpu.py adamw        bytes per second of the update beside a triad and torch's fused AdamW (2 GB of memory)
  benchmarks/cpu.py disk         what is offloaded to nvme, written and read with checksums beside the raw rate of the same disk
                                 (of the temporary folder, or of TMPDIR; 4 GB of room)
  benchmarks/cpu.py strategies   steps of 2 ranks x 1 thread under ddp, zero1, zero2, zero3, beside torch's DDP and FSDP2 over Gloo
  benchmarks/cpu.py prediction   efficiency of 2 machines of one rank over links of several rates (`skein bench scaling`), beside
                                 the model's prediction from the measured links, and from their nominal rates (`skein plan`);
                                 needs root (network namespaces)

Run them on a quiet machine: `others_cpu_share` of a row says how much of all cores other programs took meanwhile. `start` and
`strategies` need torch in Python: the environment of `make parity`, or the `torchrun` of PATH.
"""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKEIN = Path(os.environ.get("SKEIN_BUILD", ROOT / "build/release")) / "bin/skein"
PARITY = ROOT / ".deps/parity/bin"
TORCHRUN = PARITY / "torchrun" if PARITY.exists() else "torchrun"


def model(folder, hidden, layers):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "vocab_size": 512, "hidden_size": hidden, "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": 1024}))
    return folder


def train(work, name, ranks, **keys):
    """The records of trainer_log.jsonl, and the seconds from exec to the first step's line."""
    settings = {"model_name_or_path": work / "model", "train_from_scratch": "true", "train_file": work / "text.txt",
                "output_dir": work / name, "report_to": "none", "data_cache_dir": work / "cache", "save_strategy": "no",
                "learning_rate": 1e-3, **keys}
    command = [SKEIN, "train", *(f"{k}={v}" for k, v in settings.items()), "--nproc-per-node", str(ranks)]
    begin = time.time()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    first = None
    for line in process.stderr:
        if first is None and line.startswith("step 1/"):
            first = time.time() - begin
    if process.wait() != 0:
        sys.exit(f"cpu.py: {' '.join(map(str, command))} failed")
    records = [json.loads(line) for line in (work / name / "trainer_log.jsonl").read_text().splitlines()]
    losses = [r["loss"] for r in records]
    if len(losses) > 3 and not losses[-1] < losses[0]:
        sys.exit("cpu.py: the loss did not fall: the figure is of no use")
    return records, first


def rate(records):
    return statistics.median(r["tokens_per_second"] for r in records[2:])


def seconds(records):
    """Seconds of each step but the first two."""
    return [r["seconds_forward"] + r["seconds_backward"] + r["seconds_optimizer"] for r in records[2:]]


def scaling(work, rounds=3):
    """Two runs side by side share what two ranks share (memory, caches, clocks), and nothing holds them together: what
    they reach is the most that two ranks can. Ranks step together, so each step takes as long as the slower of two:
    where steps of a run differ, that costs something which no communication causes. `lockstep_limit` is what it costs,
    from the same two runs: their steps paired, the longer one counted. The kinds take turns, so that a machine that slows
    down slows all."""
    model(work / "model", hidden=384, layers=4)
    keys = {"block_size": 256, "per_device_train_batch_size": 16, "max_steps": 12, "logging_steps": 1}

    def measure(name, ranks):
        return train(work, name, ranks, **keys)[0]

    alone, together, lockstep, ranks, waits = [], [], [], [], []
    for i in range(rounds):
        alone.append(rate(measure(f"alone{i}", 1)))
        with ThreadPoolExecutor(2) as pool:
            left, right = pool.map(lambda side: measure(f"{side}{i}", 1), ("left", "right"))
        together.append(rate(left) + rate(right))
        pairs = list(zip(seconds(left), seconds(right)))
        lockstep.append(sum(l + r for l, r in pairs) / 2 / sum(map(max, pairs)))
        both = measure(f"ranks{i}", 2)
        ranks.append(rate(both))
        waits.append(statistics.median(r["seconds_communication"] / s for r, s in zip(both[2:], seconds(both))))
    median = statistics.median
    return {"case": "scaling", "tokens_per_second_1x1": median(alone), "tokens_per_second_1x1_twice": median(together),
            "tokens_per_second_2x1": median(ranks),
            "of_two_side_by_side": median(r / t for r, t in zip(ranks, together)),
            "lockstep_limit": median(lockstep),
            "rounds": [[round(r / t, 4), round(l, 4)] for r, t, l in zip(ranks, together, lockstep)],
            "waiting_share": median(waits),
            "efficiency": median(r / o / 2 for r, o in zip(ranks, alone))}


def start(work):
    model(work / "model", hidden=128, layers=2)
    keys = {"block_size": 64, "per_device_train_batch_size": 4, "max_steps": 2, "logging_steps": 1}
    ours = [train(work, f"run{i}", 2, **keys)[1] for i in range(5)]
    theirs = []
    for _ in range(3):
        begin = time.time()
        out = subprocess.run([TORCHRUN, "--standalone", "--nproc-per-node", "2",
                              ROOT / "benchmarks/peers/first_step.py", work / "model"], capture_output=True, text=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})
        stamps = [float(line.split()[1]) for line in out.stdout.splitlines() if line.startswith("first_step ")]
        if out.returncode != 0 or not stamps:
            sys.exit(f"cpu.py: the torchrun peer failed:\n{out.stderr[-2000:]}")
        theirs.append(stamps[0] - begin)
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    return {"case": "start", "skein_seconds": ours, "torchrun_seconds": theirs, "ratio": theirs / ours}


def checkpoint(work):
    model(work / "model", hidden=512, layers=6)
    keys = {"block_size": 256, "per_device_train_batch_size": 4, "max_steps": 9, "logging_steps": 1,
            "save_strategy": "steps", "save_steps": 3}
    records, _ = train(work, "run", 2, **keys)
    step = statistics.median(r["seconds_forward"] + r["seconds_backward"] + r["seconds_optimizer"] for r in records[2:])
    stalls = [r["seconds_save"] for r in records if r["seconds_save"] > 0]
    return {"case": "checkpoint", "step_seconds": step, "stall_seconds": statistics.median(stalls),
            "stall_share_of_step": statistics.median(stalls) / step}


def adamw(_):
    """All three in one process, on the same arrays, in turn; the best of each."""
    def row(dtype):
        out = subprocess.run([SKEIN, "bench", "adamw", "--dtype", dtype], capture_output=True, text=True)
        if out.returncode != 0:
            sys.exit(f"cpu.py: skein bench adamw failed:\n{out.stderr}")
        return json.loads(out.stdout)

    return {"case": "adamw", "rows": [row(dtype) for dtype in ("float32", "bfloat16", "float16")]}


def disk(work):
    """A share below 0.8 one way is a miss."""
    out = subprocess.run([SKEIN, "bench", "disk", "--path", work], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"cpu.py: skein bench disk failed:\n{out.stderr}")
    return {"case": "disk", **json.loads(out.stdout)}


class Machines:
    """Two network namespaces, joined by a link that sends `mbit` million bits a second each way. Where a machine has less than two
    cores for each, one that computes and one that moves bytes, each may use a fifth of a core: as much as it gets of a machine
    that others use too, so that they hardly disturb it."""

    SLOWER = 5 if os.cpu_count() < 4 else 1

    def __init__(self, mbit):
        self.names = [f"skein-{os.getpid()}-{i}" for i in (0, 1)]
        self.groups = [Path("/sys/fs/cgroup/cpu") / name for name in self.names] if self.SLOWER > 1 else []
        for group in self.groups:
            group.mkdir()
            (group / "cpu.cfs_period_us").write_text("5000")
            (group / "cpu.cfs_quota_us").write_text(str(5000 // self.SLOWER))
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", "skein0", "netns", self.names[0], "type", "veth", "peer", "name", "skein0",
                "netns", self.names[1])
        for i, name in enumerate(self.names):
            self.ip("-n", name, "link", "set", "lo", "up")
            self.ip("-n", name, "address", "add", f"10.83.7.{i + 1}/24", "dev", "skein0")
            self.ip("-n", name, "link", "set", "skein0", "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "skein0", "root", "tbf", "rate", f"{mbit}mbit",
                            "burst", "128kb", "latency", "200ms"], check=True)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def bench_scaling(self, model, flags):
        """What the first machine prints, of one rank on each."""
        nodes = []
        for i, name in enumerate(self.names):
            command = ["ip", "netns", "exec", name, SKEIN, "bench", "scaling", model, *flags, "--json", "--nnodes", "2", "--node-rank",
                       str(i), "--master-addr", "10.83.7.1", "--nproc-per-node", "1"]
            if self.groups:
                command = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', self.groups[i] / "tasks", *command]
            nodes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                          env={**os.environ, "OMP_NUM_THREADS": "1"}))
        out = nodes[0].communicate()[0]
        if any([node.wait() for node in nodes]):
            sys.exit("cpu.py: a run on two machines failed")
        return json.loads(out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.names:
            self.ip("netns", "delete", name)
        for group in self.groups:
            group.rmdir()


def planned(folder, strategy, compute_ms, mbit):
    """Efficiency by `skein plan`, which knows the step of one rank and the link's nominal rate."""
    keys = {"model_name_or_path": folder, "train_from_scratch": "true", "block_size": 128, "per_device_train_batch_size": 4,
            "max_steps": 1, "device": "cpu", "distributed_strategy": strategy}
    out = subprocess.run([SKEIN, "plan", *(f"{k}={v}" for k, v in keys.items()), "--nnodes", "2", "--node-rank", "0",
                          "--master-addr", "127.0.0.1", "--nproc-per-node", "1", "--compute-ms", str(compute_ms),
                          "--link-gbit", str(mbit / 1e3), "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["prediction"]["step"]["efficiency"]


def prediction(work, rates=(500 // Machines.SLOWER, 2000 // Machines.SLOWER)):
    """Both machines compute alone at the same time, then together; one rank's step is that of both."""
    folder = model(work / "model", hidden=256, layers=8)
    rows = []
    for mbit in rates:
        with Machines(mbit) as machines:
            report = machines.bench_scaling(folder, ["--batch", "4", "--tokens", "128", "--steps", "4", "--warmup", "2"])
        alone = next(row for row in report["rows"] if row["ranks"] == 1)["milliseconds"]
        for row in report["rows"]:
            if row["ranks"] == 1:
                continue
            plan = planned(folder, row["strategy"], alone, mbit)
            rows.append({"mbit": mbit, "measured_mbit": 1e3 * report["links"][0]["gbit_per_second"], "strategy": row["strategy"],
                         "one_rank_ms": alone, "step_ms": row["milliseconds"], "predicted_ms": row["predicted"]["milliseconds"],
                         "efficiency": row["efficiency"], "predicted": row["predicted"]["efficiency"], "planned": plan,
                         "points_off": 100 * (row["predicted"]["efficiency"] - row["efficiency"]),
                         "planned_points_off": 100 * (plan - row["efficiency"])})
    return {"case": "prediction", "worst_points": max(abs(r["points_off"]) for r in rows),
            "worst_planned_points": max(abs(r["planned_points_off"]) for r in rows), "rows": rows}


def strategies(work, rounds=3, steps=6):
    """The kinds take turns, each in processes of its own; a figure is the median of the rounds' medians. The peer of zero1 and
    zero2 is FSDP2 that keeps weights whole from forward to backward."""
    folder = model(work / "model", hidden=384, layers=4)
    rows, tokens = 4, 128
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

    def run(command, name):
        out = subprocess.run(command, capture_output=True, text=True, env=environment)
        if out.returncode != 0:
            sys.exit(f"cpu.py: {name} failed:\n{out.stderr[-2000:]}")
        return json.loads(out.stdout[out.stdout.index("{"):])

    peers = {"ddp": "ddp", "zero1": "fsdp2_zero2", "zero2": "fsdp2_zero2", "zero3": "fsdp2_zero3"}
    ours, theirs = {}, {}
    for _ in range(rounds):
        report = run([SKEIN, "bench", "scaling", folder, "--nproc-per-node", "2", "--device", "cpu", "--batch", str(rows),
                      "--tokens", str(tokens), "--steps", str(steps), "--json"], "skein bench scaling")
        for row in report["rows"]:
            ours.setdefault((row["ranks"], row["strategy"]), []).append(row)
        found = run([TORCHRUN, "--standalone", "--nproc-per-node", "2", ROOT / "benchmarks/peers/strategies.py", folder,
                     *map(str, (rows, tokens, steps, 3)), *sorted(set(peers.values()))], "the torchrun peer")
        for kind, seconds in found.items():
            theirs.setdefault(kind, []).append(1e3 * seconds)
    table = []
    for strategy, peer in peers.items():
        found = ours[2, strategy]
        step, torch_step = (statistics.median(ms) for ms in ([row["milliseconds"] for row in found], theirs[peer]))
        table.append({"strategy": strategy, "milliseconds": step, "peer": peer, "peer_milliseconds": torch_step,
                      "peer_over_skein": torch_step / step,
                      "efficiency": statistics.median(row["efficiency"] for row in found),
                      "predicted": statistics.median(row["predicted"]["efficiency"] for row in found),
                      "flat_mib": found[0]["peak_flat_bytes"] / 2**20,
                      "rounds": [[round(row["milliseconds"]), round(ms)] for row, ms in zip(found, theirs[peer])]})
    alone = statistics.median(row["milliseconds"] for row in ours[1, "ddp"])
    return {"case": "strategies", "one_rank_milliseconds": alone, "rows": table}


def busy_seconds():
    """Of all cores: by any program, and by those that this one has started and that have ended."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    mine = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return ((user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK"),
            sum(used.ru_utime + used.ru_stime for used in mine))


def measure(case, work):
    begin, (all_before, mine_before) = time.time(), busy_seconds()
    row = case(work)
    cores, (all_after, mine_after) = (time.time() - begin) * os.cpu_count(), busy_seconds()
    return {**row, "others_cpu_share": max(0, all_after - all_before - (mine_after - mine_before)) / cores}


def main():
    cases = {"scaling": scaling, "start": start, "checkpoint": checkpoint, "adamw": adamw, "disk": disk, "strategies": strategies,
             "prediction": prediction}
    if unknown := set(sys.argv[1:]) - set(cases):
        sys.exit(f"cpu.py: no case {', '.join(sorted(unknown))}\n{__doc__}")
    for name in sys.argv[1:] or cases:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            (work / "text.txt").write_text("".join(f"line {i} of a corpus, whose square is {i * i}\n" for i in range(40_000)))
            print(json.dumps(measure(cases[name], work)), flush=True)


if __name__ == "__main__":
    main()
