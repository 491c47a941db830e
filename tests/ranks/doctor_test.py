# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein doctor`: what it finds, what it advises, and how it ends."""
import json
import os
import socket
import subprocess
import tempfile
import unittest

from harness import ENVIRONMENT, SKEIN, TIMEOUT, children, run_skein

NAMES = ("GPUs", "versions", "P2P", "port 29500", "interfaces", "shared memory", "io_uring", "memlock",
         "open files", "disk", "memory", "cores", "clock", "launch", "disk rate", "all-reduce")


def doctor(code, *words, **variables):
    ended = subprocess.run([SKEIN, "doctor", *words], env=ENVIRONMENT | variables, text=True,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT)
    if ended.returncode != code:
        raise AssertionError(f"ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}")
    return ended


def checks(ended):
    return {check["name"]: check for check in json.loads(ended.stdout)["checks"]}


class Doctor(unittest.TestCase):
    def test_a_healthy_machine(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = doctor(0, "--json", TMPDIR=folder)
            self.assertEqual(os.listdir(folder), [])
        report = json.loads(ended.stdout)
        self.assertTrue(report["healthy"])
        self.assertEqual(tuple(check["name"] for check in report["checks"]), NAMES)
        for check in report["checks"]:
            self.assertEqual(check["health"] == "ok", check["advice"] == "", check)
        rate = report["disk_rate"]
        self.assertEqual(rate["path"], ".")
        self.assertGreater(min(rate["read_bytes_per_second"], rate["write_bytes_per_second"]), 0)
        self.assertLessEqual(rate["bytes"], 256 << 20)
        measured = report["all_reduce"]
        self.assertEqual((measured["ranks"], measured["bytes"]), (2, 64 << 20))
        seconds = measured["milliseconds"] / 1e3
        self.assertAlmostEqual(measured["gigabytes_per_second"] * seconds, (64 << 20) / 1e9, places=6)
        self.assertRegex(report["worker"]["libtorch"], r"^\d+\.\d+")
        self.assertEqual(children(os.getpid()), [])

    def test_problems_are_named_with_what_to_do(self):
        ended = doctor(2, "--json", MASTER_ADDR="no-such-host.invalid", NODE_RANK="3")
        found = checks(ended)
        self.assertFalse(json.loads(ended.stdout)["healthy"])
        master = found["MASTER_ADDR=no-such-host.invalid"]
        self.assertEqual(master["health"], "problem")
        self.assertIn("unset MASTER_ADDR", master["advice"])
        self.assertEqual(found["launch"]["health"], "problem")
        self.assertIn("NODE_RANK=3", found["launch"]["found"])

    def test_lines_for_people_with_a_taken_port(self):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", 29500))
                listener.listen()
            except OSError:
                pass  # somebody else has it, which serves as well
            lines = doctor(0, MASTER_ADDR="127.0.0.1").stdout.splitlines()
        for name in (*NAMES, "MASTER_ADDR=127.0.0.1"):
            self.assertEqual(len([line for line in lines if line[9:].startswith(name.ljust(14))]), 1, name)
        port = next(i for i, line in enumerate(lines) if "port 29500" in line)
        self.assertTrue(lines[port].startswith("warning"), lines[port])
        self.assertIn("do: ", lines[port + 1])
        self.assertIn("--master-port", lines[port + 1])
        self.assertTrue(any("127.0.0.1 (lo)" in line for line in lines))

    def test_the_rate_of_another_disk(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            ended = doctor(0, "--json", "--path", folder, SKEIN_IO_URING="0")
            self.assertEqual(os.listdir(folder), [])
            rate = json.loads(ended.stdout)["disk_rate"]
            self.assertEqual((rate["path"], rate["io_uring"]), (folder, False))
            self.assertIn(folder, checks(ended)["disk rate"]["found"])
            missing = checks(doctor(0, "--json", "--path", f"{folder}/none"))["disk rate"]
        self.assertEqual(missing["health"], "warning")
        self.assertIn("there is no folder", missing["found"])

    def test_words(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("did you mean '--json'", run_skein(["doctor", "--jsn"], folder, 2).stderr)
            self.assertIn("takes no 'x'", run_skein(["doctor", "x"], folder, 2).stderr)
            self.assertIn("exit code 0", run_skein(["doctor", "--help"], folder).stdout.lower())


if __name__ == "__main__":
    unittest.main()
