#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Rewards of a server, asked over HTTP in OpenRLHF's format, as a reward program of skein (docs/reward_protocol.md).

  reward_program: [python3, scripts/remote_reward.py, "http://127.0.0.1:5000/get_reward"]

Each batch is one POST of {"query": […], "prompts": […], "labels": […]}: a query is the prompt with its completion;
labels are the column --label of the rows, null in rows without it. The server answers {"rewards": […]}, one number
for each, or null where it has no opinion; other keys of its answer are passed over. Nothing but Python's standard
library is needed. A request that fails is tried again, --tries times in all; then every completion of the batch is
answered with the error.
"""
import argparse
import json
import math
import sys
import time
import urllib.error
import urllib.request
from http.client import HTTPException

PROTOCOL = 1
MOST_BYTES = 64 << 20  # of an answer
BUSY = (408, 425, 429)


class Failed(Exception):
    """Why a request has no answer."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="http:// or https://")
    parser.add_argument("--label", default="label", metavar="COLUMN", help="sent as labels (label)")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a request (60)")
    parser.add_argument("--tries", type=int, default=3, help="of a request (3)")
    options = parser.parse_args()
    if not options.url.startswith(("http://", "https://")):
        parser.error(f"{options.url}: expected http:// or https://")
    print(json.dumps({"protocol": PROTOCOL, "names": ["remote"]}), flush=True)
    batch = []
    for line in sys.stdin.buffer:
        batch.append(json.loads(line))
        if len(batch) == batch[0]["count"]:
            answer(batch, options)
            batch = []
    return 0


def answer(batch, options):
    try:
        rewards = ask(batch, options)
        answers = [{"id": completion["id"], "reward": reward} for completion, reward in zip(batch, rewards)]
    except Failed as why:
        answers = [{"id": completion["id"], "error": f"{options.url}: {why}"} for completion in batch]
    sys.stdout.write("".join(json.dumps(line) + "\n" for line in answers))
    sys.stdout.flush()


def ask(batch, options):
    body = {"query": [completion["prompt"] + completion["completion"] for completion in batch],
            "prompts": [completion["prompt"] for completion in batch],
            "labels": [completion["row"].get(options.label) for completion in batch]}
    for tried in range(1, options.tries + 1):
        try:
            return checked(post(options, body), len(batch))
        except (OSError, HTTPException) as failure:
            # The server has understood, and will not think better of it; unless it is busy.
            final = isinstance(failure, urllib.error.HTTPError) and failure.code < 500 and failure.code not in BUSY
            why = f"HTTP {failure.code} {failure.reason}" if isinstance(failure, urllib.error.HTTPError) else failure
        if final or tried == options.tries:
            raise Failed(why)
        print(f"remote_reward: {options.url}: {why}; again", file=sys.stderr, flush=True)
        time.sleep(min(2 ** (tried - 1), 10))
    raise Failed("--tries is below 1")


def post(options, body):
    request = urllib.request.Request(options.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=options.timeout) as response:
        return response.read(MOST_BYTES)


def checked(text, count):
    try:
        answer = json.loads(text)
    except ValueError:
        raise Failed(f"the answer is no JSON: {text[:100]!r}") from None
    rewards = answer.get("rewards") if isinstance(answer, dict) else None
    if not isinstance(rewards, list) or len(rewards) != count:
        raise Failed(f"expected {{\"rewards\": […]}} with {count} numbers, got {text[:100]!r}")
    for reward in rewards:
        is_number = isinstance(reward, (int, float)) and not isinstance(reward, bool)
        if reward is not None and not (is_number and math.isfinite(reward)):
            raise Failed(f"a reward is {reward!r}")
    return rewards


if __name__ == "__main__":
    sys.exit(main())
