# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""docs/add_a_model.md, followed word for word on a copy of the tree, adds a family that works.

Compiled is what the page touches; everything else is linked from the build that is there."""
import json
import re
import shlex
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import harness
from harness import ROOT, Workspace, run_skein

BUILD = harness.SKEIN.parent.parent
COPY = BUILD / "add_a_model"  # always the same path, so that ccache knows the files
PROGRAMS = BUILD / "add_a_model_bin"  # as deep as bin/: programs find LibTorch by their own place
PAGE = (ROOT / "docs/add_a_model.md").read_text()
TESTS = ("shapes_test.cpp", "gradient_test.cpp", "decode_test.cpp")


def copy_tree():
    shutil.rmtree(COPY, ignore_errors=True)
    for folder in ("skein", "tools"):
        shutil.copytree(ROOT / folder, COPY / folder, ignore=shutil.ignore_patterns("__pycache__"))


def follow_page():
    """Returns the sources that it creates or changes."""
    touched = []
    for path, text in re.findall(r"^Create `([^`]+)`:\n\n```cpp\n(.*?)^```$", PAGE, re.M | re.S):
        (COPY / path).write_text(text)
        touched.append(path)
    for path, added, anchor in re.findall(r"^In `([^`]+)`, put `([^`]+)` after `([^`]+)`\.$", PAGE, re.M):
        text = (COPY / path).read_text()
        line = re.search(rf"^( *)(.*{re.escape(anchor)})$", text, re.M)
        assert line, f"{path} has no line that ends with {anchor}"
        (COPY / path).write_text(text[:line.end()] + f"\n{line[1]}{added}" + text[line.end():])
        touched.append(path)
    return sorted({path for path in touched if path.endswith(".cpp")})


def compile_commands(sources):
    """{object: command}, with the flags that the build gives to a source of the same folder."""
    database = json.loads((BUILD / "compile_commands.json").read_text())
    flags = {}
    for entry in database:
        folder = Path(entry["file"]).parent
        if folder.is_relative_to(ROOT / "skein"):
            flags.setdefault(str(folder.relative_to(ROOT)), entry)
    commands = {}
    for source in sources:
        entry = flags[str(Path(source).parent)]
        words = shlex.split(entry["command"].replace(f"-I{ROOT} ", f"-I{COPY} "))
        made = str(COPY / source.replace("/", "_")) + ".o"
        words[words.index("-o") + 1] = made
        words[words.index("-c") + 1] = str(COPY / source)
        commands[made] = words
    return commands


def link_command(target, program, objects):
    """The build's own command for `target`, with `objects` before its archives."""
    listed = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "-s", target], check=True, text=True,
                            capture_output=True).stdout
    line = listed.strip().splitlines()[-1].removeprefix(": && ").removesuffix(" && :")
    words = [word.replace("\\$", "$") for word in shlex.split(line)]  # a shell would read \$ORIGIN so
    place = words.index("-o")
    return [*words[:place], *objects, "-o", str(program), *words[place + 2:]]


def run(words):
    ended = subprocess.run(words, cwd=BUILD, text=True, capture_output=True)
    if ended.returncode != 0:
        raise AssertionError(f"{shlex.join(words)}\n{ended.stdout}{ended.stderr}")


class AddAModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        copy_tree()
        sources = follow_page()
        # One source for the tests: LibTorch's headers cost seconds each time.
        tests = COPY / "skein/model/proof.cpp"
        tests.write_text("".join(f'#include "skein/model/{name}"\n' for name in TESTS))
        commands = compile_commands([*sources, "skein/model/proof.cpp"])
        running = [subprocess.Popen(words, cwd=BUILD, stderr=subprocess.PIPE, text=True)
                   for words in commands.values()]
        for process, words in zip(running, commands.values()):
            if process.communicate()[1] and process.returncode:
                raise AssertionError(shlex.join(words))
        objects = list(commands)
        cls.sources, proof = sources, objects.pop()
        PROGRAMS.mkdir(exist_ok=True)
        plan_objects = [name for name in objects if "/skein_plan_" in name]
        run(link_command("bin/skein", PROGRAMS / "skein", plan_objects))
        run(link_command("bin/skein-worker", PROGRAMS / "skein-worker", objects))
        words = link_command("tests/model_test", PROGRAMS / "proof", [*objects, proof])
        run([word for word in words if "/Unity/" not in word])

    def test_the_page_names_every_place(self):
        self.assertEqual(self.sources, ["skein/model/families.cpp", "skein/model/toy.cpp",
                                        "skein/plan/families/families.cpp", "skein/plan/families/toy.cpp"])
        for folder in ("plan", "model"):
            self.assertIn("toy.cpp", (COPY / f"skein/{folder}/CMakeLists.txt").read_text())
        run([sys.executable, str(ROOT / "tools/check_layers.py"), str(COPY)])

    def test_the_proof_passes(self):
        run([str(PROGRAMS / "proof")])

    def test_the_family_plans_trains_and_generates(self):
        toy = {"model_type": "toy", "vocab_size": 257, "width": 32, "depth": 3, "positions": 64, "note": [1]}
        was, harness.SKEIN = harness.SKEIN, PROGRAMS / "skein"
        self.addCleanup(setattr, harness, "SKEIN", was)
        with Workspace(toy, max_steps=4, global_batch_size=8, distributed_strategy="zero3",
                       output_dir="out") as work:
            plan = json.loads(run_skein(["plan", *work.command(ranks=2)[1:], "--json"], work.folder).stdout)
            work.run(ranks=2)
            records = work.records("out")
            self.assertLess(records[-1]["loss"], records[0]["loss"])
            self.assertEqual(plan["model"]["memory_per_rank"][3]["flat_peak"],
                             records[-1]["peak_memory_bytes"])
            self.assertEqual(json.loads((work / "out/config.json").read_text())["note"], [1])
            run_skein(["generate", "out", "--prompt", "abc", "--max-new-tokens", "3"], work.folder)
            refused = work.run("block_size=65", "--fresh", ranks=2, code=2).stderr
            self.assertIn("block_size is 65, but the model knows 64 positions", refused)
            work.write_model(toy | {"mlp": 4})
            self.assertIn("model/config.json: mlp is not supported",
                          work.run("output_dir=other", ranks=2, code=2).stderr)


if __name__ == "__main__":
    unittest.main()
