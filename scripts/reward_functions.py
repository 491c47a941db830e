#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Reward functions in the manner of TRL, as a reward program of skein (docs/reward_protocol.md).

  reward_program: [python3, scripts/reward_functions.py, FILE]
  reward_program: [python3, scripts/reward_functions.py, FILE, correct, brief=0.2]

FILE is Python. Its reward functions are those that it defines itself, whose names do not begin with _, and which
take `completions`:

  def correct(completions, answer, **columns):
      return [1.0 if text.strip() == right else 0.0 for text, right in zip(completions, answer)]

Each is a reward of its own, with its own name in metrics. Words after FILE choose some, in that order, and
NAME=WEIGHT weighs one; the weight of the program weighs all of them together.

A function is called once for each batch, with lists: `prompts` (the column `prompt`, or what the model has read),
`completions`, and every other column of the rows under its name, None in rows without it. Where `prompt` is a list
of messages completions are lists of one message, {"role": "assistant", "content": …}, as TRL has it. It returns as
many numbers; None is no opinion. An `async def` is awaited. What it prints goes to the log.
"""
import asyncio
import contextlib
import importlib.util
import inspect
import json
import math
import os
import sys
import traceback
from pathlib import Path

PROTOCOL = 1
OWN = ("prompts", "completions")


class Refused(Exception):
    """What a user has to mend; its text is the message."""


def main(words):
    if not words or words[0] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if words else 2
    asked, replies = take_streams()
    with contextlib.redirect_stdout(sys.stderr):  # a print() in FILE must not get between answers
        try:
            functions, weights = choose(load(Path(words[0])), words[1:])
        except Refused as why:
            print(f"error: {why}", file=sys.stderr)
            return 2
        say(replies, {"protocol": PROTOCOL, "names": list(functions), "weights": weights})
        batch = []
        for line in asked:
            batch.append(json.loads(line))
            if len(batch) == batch[0]["count"]:
                for answer in answers(functions, batch):
                    say(replies, answer)
                replies.flush()
                batch = []
    return 0


def take_streams():
    """Questions and answers, out of reach of what FILE starts: its children read nothing, and print to the log."""
    asked, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return asked, replies


def say(replies, message):
    replies.write(json.dumps(message) + "\n")
    if "protocol" in message:
        replies.flush()


def load(path):
    """The reward functions of a file, by name."""
    if not path.is_file():
        raise Refused(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location("skein_reward_functions", path)
    if spec is None:
        raise Refused(f"{path}: no Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))  # what lies beside it can be imported
    spec.loader.exec_module(module)
    functions = {name: value for name, value in vars(module).items()
                 if inspect.isfunction(value) and value.__module__ == spec.name
                 and not name.startswith("_") and "completions" in inspect.signature(value).parameters}
    if not functions:
        raise Refused(f"{path}: no function that takes `completions`")
    return functions


def choose(functions, words):
    if not words:
        return functions, [1.0] * len(functions)
    chosen, weights = {}, []
    for word in words:
        name, equals, weight = word.partition("=")
        if name not in functions:
            raise Refused(f"no reward function '{name}'; there are: {', '.join(functions)}")
        if name in chosen:
            raise Refused(f"'{name}' is named twice")
        try:
            weights.append(float(weight) if equals else 1.0)
        except ValueError:
            raise Refused(f"{word}: the weight is no number") from None
        if not math.isfinite(weights[-1]):
            raise Refused(f"{word}: the weight is not finite")
        chosen[name] = functions[name]
    return chosen, weights


def answers(functions, batch):
    """One for each completion. What goes wrong is an answer too, so that skein can name its sample."""
    columns = arguments_of(batch)
    rewards = []
    for name, function in functions.items():
        try:
            rewards.append(call(name, function, columns, len(batch)))
        except Exception as failure:  # whatever a user's function raises
            traceback.print_exc()
            why = str(failure) if isinstance(failure, Refused) else f"{name} raised {failure!r}"
            return [{"id": completion["id"], "error": why} for completion in batch]
    return [one_answer(completion["id"], functions, row) for completion, row in zip(batch, zip(*rewards))]


def one_answer(number, names, rewards):
    for name, reward in zip(names, rewards):
        if reward is not None and not math.isfinite(reward):
            return {"id": number, "error": f"{name} gave {reward}"}
    return {"id": number, "rewards": list(rewards)}


def arguments_of(batch):
    rows = [completion["row"] for completion in batch]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names if name not in OWN}
    prompts, texts = [], []
    for completion, row in zip(batch, rows):
        is_chat = isinstance(row.get("prompt"), list)
        prompts.append(row.get("prompt") or completion["prompt"])
        texts.append([{"role": "assistant", "content": completion["completion"]}] if is_chat
                     else completion["completion"])
    columns.pop("prompt", None)
    return columns | {"prompts": prompts, "completions": texts}


def call(name, function, columns, count):
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    missing = [parameter.name for parameter in parameters
               if parameter.default is parameter.empty and parameter.name not in columns
               and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)]
    if missing:
        raise Refused(f"{name} takes '{missing[0]}', which is no column of the rows; they have: {', '.join(columns)}")
    wanted = {parameter.name for parameter in parameters}
    given = {key: value for key, value in columns.items() if takes_all or key in wanted}
    result = function(**given)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    result = [None if reward is None else float(reward) for reward in result]
    if len(result) != count:
        raise Refused(f"{name} gave {len(result)} rewards for {count} completions")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
