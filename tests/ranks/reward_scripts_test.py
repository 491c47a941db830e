# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""scripts/reward_functions.py, scripts/remote_reward.py and the program of docs/reward_protocol.md, asked as skein
asks them: do they answer each completion, or say what is wrong with it? That skein takes what programs say is
shown by skein/rewards/scorer_test.cpp."""
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from harness import ROOT

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
FUNCTIONS = """
def _hidden(completions, **columns):
    return [9.0] * len(completions)

def helper(text):
    return text.strip()

def correct(completions, answer, **columns):
    print("looked at", len(completions))
    return [1.0 if helper(text) == right else 0.0 for text, right in zip(completions, answer)]

def brief(prompts, completions):
    return [None if prompt == "p1" else -len(text) for prompt, text in zip(prompts, completions)]
"""


def questions(*batches):
    """The lines of some batches; each is a list of (completion, row)."""
    lines = []
    for number, batch in enumerate(batches):
        for index, (completion, row) in enumerate(batch):
            lines.append({"id": len(lines), "batch": number, "index": index, "count": len(batch), "sample": index, "generation": 0,
                          "turn": 0, "max_turns": 1, "prompt": f"p{index}", "completion": completion,
                          "num_tokens": 3, "finished": True, "row": row})
    return "".join(json.dumps(line) + "\n" for line in lines)


BATCHES = ([(" 4", {"answer": "4"}), ("5", {"answer": "4"})], [("six", {"answer": "six"})])


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="skein-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, *words, given="", code=0):
        """The lines that it says, read."""
        ended = subprocess.run([sys.executable, *map(str, words)], input=given, capture_output=True, text=True,
                               timeout=60, env=ENVIRONMENT, cwd=self.folder)
        self.assertEqual(ended.returncode, code, ended.stderr)
        self.stderr = ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()]

    def test_the_program_of_the_page(self):
        page = (ROOT / "docs/reward_protocol.md").read_text()
        program = self.folder / "program.py"
        program.write_text(re.search(r"```python\n(.*?)```", page, re.S).group(1))
        self.assertEqual(self.run_program(program, given=questions(*BATCHES)),
                         [{"protocol": 1}, {"id": 0, "reward": 1.0}, {"id": 1, "reward": 0.0},
                          {"id": 2, "reward": 1.0}])


class RewardFunctions(Programs):
    def ask(self, code, *words, given=questions(*BATCHES), exit_code=0):
        (self.folder / "mine.py").write_text(code)
        return self.run_program(ROOT / "scripts/reward_functions.py", "mine.py", *words, given=given, code=exit_code)

    def test_each_function_is_a_reward(self):
        ready, *answers = self.ask(FUNCTIONS)
        self.assertEqual(ready, {"protocol": 1, "names": ["correct", "brief"], "weights": [1.0, 1.0]})
        self.assertEqual(answers, [{"id": 0, "rewards": [1.0, -2.0]}, {"id": 1, "rewards": [0.0, None]},
                                   {"id": 2, "rewards": [1.0, -3.0]}])
        self.assertEqual(self.stderr.splitlines(), ["looked at 2", "looked at 1"])

    def test_children_read_nothing_and_print_to_the_log(self):
        _, *answers = self.ask("""
import subprocess
def runs(completions):
    subprocess.run(["sh", "-c", "echo from a child; cat"], check=True, timeout=20)
    return [1.0] * len(completions)
""")
        self.assertEqual([answer["rewards"] for answer in answers], [[1.0]] * 3)
        self.assertIn("from a child", self.stderr)

    def test_words_choose_and_weigh(self):
        ready, *answers = self.ask(FUNCTIONS, "brief=0.5", "correct")
        self.assertEqual((ready["names"], ready["weights"]), (["brief", "correct"], [0.5, 1.0]))
        self.assertEqual(answers[0]["rewards"], [-2.0, 1.0])

    def test_conversations_as_trl_has_them(self):
        row = {"prompt": [{"role": "user", "content": "2 + 2"}], "tests": [1, 2]}
        code = ("def f(prompts, completions, tests, **rest):\n"
                "    assert rest == {}, rest\n"
                "    assert tests == [[1, 2]] and prompts == [[{'role': 'user', 'content': '2 + 2'}]]\n"
                "    return [float(c[0]['content'] == '4' and c[0]['role'] == 'assistant') for c in completions]\n")
        self.assertEqual(self.ask(code, given=questions([("4", row)]))[1:], [{"id": 0, "rewards": [1.0]}])

    def test_async_functions_are_awaited(self):
        code = "async def f(completions):\n    return [2] * len(completions)\n"
        self.assertEqual(self.ask(code)[1], {"id": 0, "rewards": [2.0]})

    def test_what_a_function_does_wrong_is_an_answer(self):
        for code, why in (("raise ValueError('no luck')", "f raised ValueError('no luck')"),
                          ("return [1.0]", "f gave 1 rewards for 2 completions"),
                          ("return [float('nan'), 1.0]", "f gave nan"),
                          ("return None", "f raised TypeError"),
                          ("return ['a', 'b']", "f raised ValueError")):
            answers = self.ask(f"def f(completions, **columns):\n    {code}\n", given=questions(BATCHES[0]))[1:]
            self.assertEqual([answer["id"] for answer in answers], [0, 1])
            self.assertTrue(answers[0]["error"].startswith(why), answers)
        answers = self.ask("def f(completions, label):\n    return [1.0] * len(label)\n")[1:]
        self.assertIn("f takes 'label', which is no column of the rows; they have: answer", answers[0]["error"])

    def test_files_and_words_that_are_refused(self):
        for code, words, why in (("x = 1\n", [], "no function that takes `completions`"),
                                 (FUNCTIONS, ["corect"], "no reward function 'corect'; there are: correct, brief"),
                                 (FUNCTIONS, ["brief=x"], "the weight is no number"),
                                 (FUNCTIONS, ["brief=nan"], "the weight is not finite"),
                                 (FUNCTIONS, ["brief", "brief"], "named twice")):
            self.assertEqual(self.ask(code, *words, exit_code=2), [])
            self.assertIn(why, self.stderr)
        self.run_program(ROOT / "scripts/reward_functions.py", "nothing.py", code=2)
        self.assertIn("no such file", self.stderr)


class Server(HTTPServer):
    def __init__(self, *replies):
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies, self.asked = list(replies), []
        self.url = f"http://127.0.0.1:{self.server_port}/get_reward"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        status, body = self.server.replies.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


class RemoteReward(Programs):
    def ask(self, *replies, words=()):
        with Server(*replies) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            try:
                ready, *answers = self.run_program(ROOT / "scripts/remote_reward.py", server.url, *words,
                                                   given=questions(BATCHES[0]))
            finally:
                server.shutdown()
                thread.join()
            self.assertEqual(ready, {"protocol": 1, "names": ["remote"]})
            self.asked = server.asked
            return answers

    def test_one_request_for_a_batch(self):
        answers = self.ask((200, '{"rewards": [0.5, null], "scores": [1, 2]}'), words=["--label", "answer"])
        self.assertEqual(answers, [{"id": 0, "reward": 0.5}, {"id": 1, "reward": None}])
        self.assertEqual(self.asked, [{"query": ["p0 4", "p15"], "prompts": ["p0", "p1"], "labels": ["4", "4"]}])

    def test_a_server_that_fails_is_asked_again(self):
        answers = self.ask((503, ""), (200, '{"rewards": [1, 2]}'))
        self.assertEqual([answer["reward"] for answer in answers], [1, 2])
        self.assertIn("HTTP 503", self.stderr)
        self.assertEqual(self.asked[0]["labels"], [None, None])

    def test_what_is_no_answer_is_told(self):
        for reply, why in (((404, ""), "HTTP 404"),
                           ((200, "hello"), "the answer is no JSON"),
                           ((200, "[]"), 'expected {"rewards"'),
                           ((200, '{"rewards": [1]}'), "with 2 numbers"),
                           ((200, '{"rewards": [1, NaN]}'), "a reward is nan"),
                           ((200, '{"rewards": [1, "2"]}'), "a reward is '2'")):
            answers = self.ask(reply)
            self.assertEqual([answer["id"] for answer in answers], [0, 1])
            self.assertIn(why, answers[1]["error"])
        self.ask((500, ""), words=["--tries", "1"])

    def test_a_server_that_is_not_there(self):
        with Server() as server:
            url = server.url
        _, *answers = self.run_program(ROOT / "scripts/remote_reward.py", url, "--tries", "1",
                                       given=questions(BATCHES[0]))
        self.assertIn("refused", answers[0]["error"])
        self.run_program(ROOT / "scripts/remote_reward.py", "file:///etc/passwd", code=2)
        self.assertIn("expected http:// or https://", self.stderr)


if __name__ == "__main__":
    unittest.main()
