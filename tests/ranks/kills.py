# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Kills a run at an instant, lets it go on, and compares it with a run that nobody disturbed.

  with Scene() as scene:
      print(scene.play(Fault(kind="rank", victim=1, instant=0.5, ranks=2, strategy="zero2")))
"""
import os
import re
import shutil
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness import TIMEOUT, Workspace, children, gpt2, is_alive, wait_until_gone

STEPS = 48
SAVE_EVERY = 4
KINDS = ("rank", "rank 0", "launcher", "all", "SIGTERM", "SIGSTOP")
# What a fault leads to when nobody starts the run again.
EXIT_CODES = {"rank": 1, "rank 0": 1, "launcher": -signal.SIGKILL, "all": -signal.SIGKILL,
              "SIGTERM": 75, "SIGSTOP": 3}
WAYS = ("again", "restart")  # the same command, or --max-restarts


@dataclass
class Fault:
    kind: str
    ranks: int
    strategy: str
    instant: float = 0   # as a fraction of the undisturbed run's time
    step: int = 0        # or, when it is not 0, once this step is done
    victim: int = 0      # of "rank" and "SIGSTOP"
    way: str = "again"
    seed: int = 0
    words: tuple = ()    # of the recipe, beside the strategy


@dataclass
class Result:
    fault: Fault
    at_step: int = 0                 # that was finished when the fault came
    detected: float = 0.0            # seconds from the fault to the report (or to the end, where
    ended: float = 0.0               # nobody is left to report); to the end of all processes
    recovered: float | None = None   # seconds to the next finished step: from the fault, or from the
    problems: list = field(default_factory=list)  # new start; None when nothing was left to do
    stderr: str = ""


class Watched:
    """A run in the background; its lines on stderr with the time they came."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self.started = time.monotonic()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic(), line))
        self.process.stdout.read()

    def wait(self, seconds=TIMEOUT):
        """The exit code; None when it had to be killed."""
        give_up = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.002)
        ended = self.process.poll() is not None
        self.ended = time.monotonic()
        if not ended:
            self.process.kill()
            self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode if ended else None

    def ranks(self):
        """{rank: process id} of those that run now."""
        found = {}
        for pid in children(self.process.pid):
            match = re.search(rb"(?:^|\0)RANK=(\d+)\0", environment_of(pid))
            if match:
                found[int(match.group(1))] = pid
        return found

    def last_step(self):
        return max((step_of(line) for _, line in self.lines), default=0)

    def time_of(self, wanted, since):
        """When the first line for which wanted(line) came after `since`; None if none did."""
        return next((when for when, line in self.lines if when >= since and wanted(line)), None)

    def was_done(self, before):
        return any(line.startswith("done: ") for when, line in self.lines if when < before)

    def text(self):
        """Without the line of every step."""
        return "".join(line for _, line in self.lines if step_of(line) == 0)


def environment_of(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def step_of(line):
    match = re.match(r"(?:rank \d+: )?step (\d+)/\d+ ", line)
    return int(match.group(1)) if match else 0


def listening_sockets(pids):
    """{inode: port} of the TCP sockets that these processes listen on."""
    links = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                links.add(os.readlink(link))
            except OSError:
                continue  # closed meanwhile
    return {inode: port for inode, port in all_listening_sockets() if f"socket:[{inode}]" in links}


def all_listening_sockets():
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            yield fields[9], int(fields[1].split(":")[1], 16)


def processes_in(folder):
    """Process ids of all that have this working directory."""
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if os.readlink(cwd) == str(folder) and is_alive(int(cwd.parent.name)):
                found.append(int(cwd.parent.name))
        except OSError:
            continue
    return found


class Scene:
    """A workspace whose undisturbed runs, one per number of ranks, strategy and words, are the oracles."""

    def __init__(self):
        # Dropout, accumulation, evaluation, and more ends of epochs than one.
        self.work = Workspace(gpt2(), num_blocks=60, global_batch_size=24,
                              gradient_accumulation_steps=2, max_steps=STEPS, save_steps=SAVE_EVERY,
                              save_total_limit=2, eval_strategy="steps", eval_steps=7,
                              eval_file="eval.txt")
        self.work.write_text(8, name="eval.txt", seed=2)
        self.seconds = {}  # of the oracles

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.work.folder)

    def start(self, output, fault, *words):
        return Watched(self.work.start(f"output_dir={output}",
                                       f"distributed_strategy={fault.strategy}", *fault.words, *words,
                                       ranks=fault.ranks))

    def oracle(self, fault):
        """Its folder; made when it is first asked for."""
        output = "-".join(["whole", str(fault.ranks), fault.strategy, *fault.words])
        if output not in self.seconds:
            run = self.start(output, fault)
            code = run.wait()
            if code != 0:
                raise AssertionError(f"undisturbed run ended with {code}:\n{run.text()}")
            self.seconds[output] = run.ended - run.started
        return output

    def play(self, fault):
        """One fault, the continuation and the comparison."""
        oracle = self.oracle(fault)
        output = f"seed-{fault.seed}"
        for attempt in range(5):
            shutil.rmtree(self.work / output, ignore_errors=True)
            seconds = self.seconds[oracle] * fault.instant * 0.7 ** attempt
            result = self._disturb(fault, output, seconds)
            if result is not None:
                break
        else:
            raise AssertionError(f"{fault}: every run had ended before its fault")
        if not result.problems and fault.way == "again":
            self._continue(fault, output, result)
        if not result.problems:
            self._compare(output, oracle, result)
        shutil.rmtree(self.work / output, ignore_errors=True)
        return result

    def _disturb(self, fault, output, seconds):
        """None when the run was faster than the fault."""
        words = ["--max-restarts", "3"] if fault.way == "restart" else []
        run = self.start(output, fault, *words)
        try:
            time.sleep(max(0.0, seconds - (time.monotonic() - run.started)))
            while run.last_step() < fault.step and run.process.poll() is None:
                time.sleep(0.002)
            struck = strike(run, fault)
            code = run.wait(60)
            if struck is None and code != 0:
                raise AssertionError(f"{fault}: ended with {code} before its fault:\n{run.text()}")
            if struck is None or code == 0 and run.was_done(before=struck[0]):
                return None
        finally:
            if run.process.poll() is None:
                run.process.kill()
        when, pids, sockets, at_step = struck
        result = Result(fault, at_step=at_step, stderr=run.text())
        left = wait_until_gone([*pids, *processes_in(self.work.folder)], 10)
        result.ended = max(run.ended, time.monotonic() if fault.kind in ("launcher", "all") else 0) - when
        if left:
            result.problems.append(f"processes {left} are left")
        open_still = [port for inode, port in all_listening_sockets() if inode in sockets]
        if open_still:
            result.problems.append(f"ports {open_still} are left")
        self._check_report(fault, run, code, when, result)
        return result

    def _check_report(self, fault, run, code, when, result):
        expected = {0} if fault.way == "restart" else {EXIT_CODES[fault.kind]}
        # After the last step there is nothing left to stop.
        if fault.kind == "SIGTERM":
            expected |= {0} if result.at_step >= STEPS - 1 else set()
        if code not in expected:
            result.problems.append(f"exit code {code}, not {sorted(expected)}")
        result.detected = result.ended
        if fault.kind in ("rank", "rank 0", "SIGSTOP"):
            word = "has been stopped" if fault.kind == "SIGSTOP" else "killed by SIGKILL"
            pattern = rf"(error|warning): .*rank {fault.victim} (of {fault.ranks} )?on .* {word}"
            reported = run.time_of(lambda line: re.search(pattern, line), when)
            if reported is None:
                result.problems.append(f"no line matches '{pattern}'")
            else:
                result.detected = reported - when
                if fault.way == "restart":
                    step = run.time_of(lambda line: step_of(line) > 0, reported)
                    result.recovered = None if step is None else step - when

    def _continue(self, fault, output, result):
        run = self.start(output, fault)
        code = run.wait()
        result.stderr += "--- the same command again\n" + run.text()
        step = run.time_of(lambda line: step_of(line) > 0, run.started)
        result.recovered = None if step is None else step - run.started
        if code != 0:
            result.problems.append(f"the same command again: exit code {code}")

    def _compare(self, output, oracle, result):
        last = f"checkpoint-{STEPS}"
        for name in ("model.safetensors", f"{last}/model.safetensors",
                     f"{last}/optimizer.safetensors"):
            found, expected = self.work / output / name, self.work / oracle / name
            if not found.exists() or found.read_bytes() != expected.read_bytes():
                result.problems.append(f"{name} differs from the undisturbed run's")
        if self._losses(output) != self._losses(oracle):
            result.problems.append("trainer_log.jsonl differs from the undisturbed run's")
        left = [path.name for path in (self.work / output).iterdir() if ".tmp-" in path.name]
        if left:
            result.problems.append(f"{left} are left")

    def _losses(self, output):
        return [(record["step"], record.get("loss"), record.get("eval_loss"))
                for record in self.work.records(output)]


def strike(run, fault):
    """Does it. Returns (time, processes, listening sockets, last step), or None when the run has ended."""
    needs_rank = fault.kind in ("rank", "rank 0", "SIGSTOP")
    ranks = run.ranks()
    while needs_rank and len(ranks) < fault.ranks:
        if run.process.poll() is not None:
            return None
        time.sleep(0.002)
        ranks = run.ranks()
    if run.process.poll() is not None:
        return None
    pids = [run.process.pid, *ranks.values()]
    sockets = listening_sockets(pids)
    targets = {"launcher": [run.process.pid], "all": pids,
               "SIGTERM": [run.process.pid]}.get(fault.kind) or [ranks[fault.victim]]
    sent = {"SIGTERM": signal.SIGTERM, "SIGSTOP": signal.SIGSTOP}.get(fault.kind, signal.SIGKILL)
    at_step = run.last_step()
    when = time.monotonic()
    try:
        for pid in targets:
            os.kill(pid, sent)
    except ProcessLookupError:
        return None
    return when, pids, sockets, at_step
