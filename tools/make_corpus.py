#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Makes the demo's corpus: sums, string tasks and small stories by grammar, in English and Chinese.

  tools/make_corpus.py OUT [--documents 24000]

Writes OUT/train.jsonl and OUT/validation.jsonl ({"text": …} per line). The same number of documents
gives the same bytes everywhere. No document is in both files: which one it goes to follows from its
text, and no text is written twice. A file gets its name when it is whole, validation.jsonl last.
"""
import argparse
import json
import random
import sys
import zlib
from pathlib import Path

VALIDATION_SHARE = 40  # one document in so many

EN_HEROES = ["fox", "wolf", "bear", "cat", "duck", "frog", "goat", "mouse"]
EN_NAMES = ["Tom", "Anna", "Ben", "Lily", "Max", "Mia", "Sam", "Rosa"]
EN_PLACES = ["forest", "garden", "river", "village", "mountain", "market"]
EN_THINGS = ["red ball", "golden key", "small boat", "warm coat", "blue stone", "sweet apple"]
EN_MOODS = ["happy", "proud", "tired", "brave"]

ZH_HEROES = ["狐狸", "小猫", "小熊", "鸭子", "青蛙", "山羊", "老鼠", "小狗"]
ZH_NAMES = ["小明", "小红", "丽丽", "安安", "东东", "乐乐"]
ZH_PLACES = ["森林", "花园", "河边", "村子", "山上", "市场"]
ZH_THINGS = ["红球", "金钥匙", "小船", "外套", "蓝石头", "苹果"]
ZH_MOODS = ["高兴", "骄傲", "累", "勇敢"]

WORDS = ("apple bread chair dance eagle field grape house juice knife lemon money night ocean paper "
         "queen river stone table uncle voice water youth zebra cloud dream flame green horse light "
         "mouse plant sheep smile train world").split()


class Draw:
    """Draws that no version of Python changes: random() is the one method with that promise."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def below(self, count):
        return int(self.random() * count)

    def one(self, choices):
        return choices[self.below(len(choices))]


def sums(draw):
    """Four facts; their order and signs make the document one of many."""
    lines = []
    for _ in range(4):
        a, b = draw.below(13), draw.below(13)
        if draw.below(3) == 0:
            a, b = max(a, b), min(a, b)
            lines.append(f"{a} - {b} = {a - b}")
        else:
            lines.append(f"{a} + {b} = {a + b}")
    return "\n".join(lines)


def strings(draw):
    lines = []
    for _ in range(3):
        word = draw.one(WORDS)
        task = draw.one(["reverse", "copy", "sort"])
        answer = {"reverse": word[::-1], "copy": word, "sort": "".join(sorted(word))}[task]
        lines.append(f"{task}: {' '.join(word)} = {' '.join(answer)}")
    return "\n".join(lines)


def english(draw):
    hero, name, place = draw.one(EN_HEROES), draw.one(EN_NAMES), draw.one(EN_PLACES)
    thing, mood = draw.one(EN_THINGS), draw.one(EN_MOODS)
    friend = draw.one([other for other in EN_HEROES if other != hero])
    opening = draw.one([f"Once upon a time there was a {hero} named {name}.",
                        f"One day a {hero} named {name} went to the {place}."])
    middle = draw.one([f"{name} lived near the {place} and looked for a {thing}.",
                       f"In the {place} {name} found a {thing}.",
                       f"{name} wanted a {thing} more than anything."])
    turn = draw.one([f'"Is this {thing} yours?" asked the {friend}.',
                     f"Then a {friend} came and asked for the {thing}.",
                     f"A {friend} was sad, so {name} gave the {thing} to the {friend}."])
    ending = draw.one([f"{name} and the {friend} played until night.",
                       f"From that day on {name} and the {friend} were friends."])
    return f"{opening} {middle} {turn} {ending} {name} was very {mood}. The end."


def chinese(draw):
    hero, name, place = draw.one(ZH_HEROES), draw.one(ZH_NAMES), draw.one(ZH_PLACES)
    thing, mood = draw.one(ZH_THINGS), draw.one(ZH_MOODS)
    friend = draw.one([other for other in ZH_HEROES if other != hero])
    opening = draw.one([f"从前有一只{hero}，名字叫{name}。", f"有一天，{hero}{name}去了{place}。"])
    middle = draw.one([f"{name}在{place}找到了{thing}。", f"{name}很想要{thing}。",
                       f"{name}住在{place}，每天都在找{thing}。"])
    turn = draw.one([f"{friend}问：“这是你的{thing}吗？”", f"{friend}很难过，{name}把{thing}送给了它。"])
    ending = draw.one([f"{name}和{friend}一起玩到晚上。", f"从那天起，{name}和{friend}成了好朋友。"])
    return f"{opening}{middle}{turn}{ending}{name}非常{mood}。故事讲完了。"


KINDS = [sums, sums, strings, english, chinese]  # sums are short


def documents(count):
    """So many different texts. Kinds are drawn: taken in turn, the next one could be learned, and
    would be wrong wherever documents are held out between."""
    draw = Draw(20240229)
    seen = set()
    while len(seen) < count:
        text = draw.one(KINDS)(draw)
        if text not in seen:
            seen.add(text)
            yield text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=int, default=24000)
    options = parser.parse_args()
    files = {"train": [], "validation": []}
    for text in documents(options.documents):
        held_out = zlib.crc32(text.encode()) % VALIDATION_SHARE == 0
        line = json.dumps({"text": text}, ensure_ascii=False) + "\n"
        files["validation" if held_out else "train"].append(line)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        path = options.out / f"{name}.jsonl"
        data = "".join(lines).encode()
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(data)
        unfinished.rename(path)
        print(f"{path}: {len(lines)} documents, {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
