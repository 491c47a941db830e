# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""`skein chat`: lines from stdin, a terminal, and what it refuses.

The model here is a table: whatever was said, the next token follows from the last one alone. So every
answer is known, byte by byte.
"""
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from harness import ENVIRONMENT, SKEIN, TIMEOUT, llama, run_skein

NAMES = ("chatml", "llama3", "qwen", "mistral", "gemma", "phi3", "alpaca")


def write_tensors(path, tensors):
    """Of {name: (shape, floats by place)}; the rest is zero."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        size = 4
        for extent in shape:
            size *= extent
        part = bytearray(size)
        for place, value in values.items():
            struct.pack_into("<f", part, 4 * place, value)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="skein-chat-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        (cls.folder / "t.txt").write_text("hello")
        run_skein(["tokenizer", "train", "--input", "t.txt", "--vocab-size", "259", "--out", "tok", "--special-token",
                   "<|im_start|>", "--special-token", "<|im_end|>"], cls.folder)

    @classmethod
    def ids(cls, text):
        return json.loads(run_skein(["tokenizer", "encode", "tok", "--text", text, "--json"], cls.folder).stdout)

    @classmethod
    def write_model(cls, name, chain, positions=4096, template="chatml"):
        """A model that says `chain` behind a line's end: a text in which no byte comes twice, or a list of ids
        that may go round."""
        folder = cls.folder / name
        shutil.copytree(cls.folder / "tok", folder)
        width = 264
        (folder / "config.json").write_text(json.dumps(llama(
            vocab_size=259, hidden_size=width, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=8, max_position_embeddings=positions, bos_token_id=0, eos_token_id=0)))
        ids = cls.ids("\n") + (cls.ids(chain) if isinstance(chain, str) else chain)
        follows = dict(zip(ids, ids[1:]))
        ones = {place: 1.0 for place in range(width)}
        block = "model.layers.0."
        write_tensors(folder / "model.safetensors", {
            "model.embed_tokens.weight": ([259, width], {token * width + token: 1.0 for token in range(259)}),
            "lm_head.weight": ([259, width], {after * width + token: 1.0 for token, after in follows.items()}),
            "model.norm.weight": ([width], ones),
            block + "input_layernorm.weight": ([width], ones), block + "post_attention_layernorm.weight": ([width], ones),
            block + "self_attn.q_proj.weight": ([8, width], {}), block + "self_attn.k_proj.weight": ([8, width], {}),
            block + "self_attn.v_proj.weight": ([8, width], {}), block + "self_attn.o_proj.weight": ([width, 8], {}),
            block + "mlp.gate_proj.weight": ([8, width], {}), block + "mlp.up_proj.weight": ([8, width], {}),
            block + "mlp.down_proj.weight": ([width, 8], {})})
        if template:
            shown = run_skein(["template", "show", template], cls.folder).stdout
            (folder / "chat_template.jinja").write_text(shown.removesuffix("\n"))
        return name

    def command(self, model, *flags):
        return [SKEIN, "chat", model, "--device", "cpu", "--temperature", "0", *flags]

    def say(self, lines, model, *flags, code=0):
        """(stdout, stderr) of a conversation without a terminal."""
        data = lines if isinstance(lines, bytes) else lines.encode()
        ended = subprocess.run(self.command(model, *flags), cwd=self.folder, env=ENVIRONMENT, input=data,
                               capture_output=True, timeout=TIMEOUT)
        self.assertEqual(ended.returncode, code, ended.stderr.decode())
        return ended.stdout.decode(), ended.stderr.decode()


class Lines(Chat):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write_model("says_hi", "hi 你<|im_end|>!")
        cls.write_model("rambles", cls.ids("ab") + cls.ids("a"), positions=300)

    def test_a_line_is_a_turn_and_stdout_has_the_answers_alone(self):
        self.assertEqual(self.say("one\n\ntwo\r\nthree", "says_hi"), ("hi 你\n" * 3, ""))
        self.assertEqual(self.say("", "says_hi"), ("", ""))

    def test_system_message_commands_and_json(self):
        stdout, _ = self.say("one\ntwo\n/reset\ntwo\n/exit\nthree\n", "says_hi", "--system", "Be brief.", "--json")
        answers = [json.loads(line) for line in stdout.splitlines()]
        self.assertEqual([answer["prompt"] for answer in answers], ["one", "two", "two"])
        self.assertEqual({(answer["text"], answer["finish_reason"]) for answer in answers}, {("hi 你", "stop")})
        alone = self.ids("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\n")
        turn = self.ids("<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nhi 你<|im_end|>\n")
        self.assertEqual([answer["num_prompt_tokens"] for answer in answers[1:]],
                         [len(turn) + len(alone), len(alone)])

    def test_words_behind_a_slash(self):
        stdout, stderr = self.say("one\n/help\ntwo\n", "says_hi", code=2)
        self.assertEqual(stdout, "hi 你\n")
        for part in ("stdin:2: there is no /help", "/reset", "/exit", "/quit"):
            self.assertIn(part, stderr)
        self.assertEqual(self.say("one\n/quit\ntwo\n", "says_hi"), ("hi 你\n", ""))
        self.assertEqual(self.say(" /help\n/etc/hosts\n/\n", "says_hi"), ("hi 你\n" * 3, ""))

    def test_an_answer_that_is_cut_says_so(self):
        stdout, stderr = self.say("x\n", "rambles", "--max-new-tokens", "5")
        self.assertEqual(stdout, "ababa\n")
        self.assertIn("the answer is cut after 5 tokens (--max-new-tokens)", stderr)
        stdout, stderr = self.say("x\n", "rambles")
        self.assertIn("the model knows 300 positions", stderr)

    def test_an_end_that_is_no_token_ends_too(self):
        self.write_model("no_end_token", "y[END]z", template=None)
        (self.folder / "end.jinja").write_text("{% for m in messages %}{{ m.content }}[END]\n{% endfor %}")
        flags = ("no_end_token", "--chat-template", "end.jinja")
        self.assertEqual(self.say("x\n", *flags), ("y\n", ""))
        self.assertEqual(self.say("x\n", *flags, "--stop", "y")[0], "\n")

    def test_the_folders_list_of_ends_counts(self):
        self.write_model("other_end", "abc<|im_end|>")
        (self.folder / "other_end/generation_config.json").write_text(json.dumps({"eos_token_id": self.ids("c")}))
        self.assertEqual(self.say("x\n", "other_end")[0], "ab\n")

    def test_the_oldest_turns_are_dropped(self):
        stdout, stderr = self.say("x" * 150 + "\n" + "y" * 150 + "\n", "rambles", "--max-new-tokens", "10")
        self.assertEqual(stdout, "ababababab\n" * 2)
        self.assertIn("too long for the model's 300 positions: 1 oldest turn forgotten", stderr)

    def test_whole_characters_as_they_come(self):
        characters = "你éж😀"  # no byte comes twice
        self.write_model("chinese", self.ids(characters) + self.ids("<|im_end|>"))
        process = subprocess.Popen(self.command("chinese"), cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        process.stdin.write(b"x\n")
        process.stdin.flush()
        text = ""
        while not text.endswith("\n"):
            text += os.read(process.stdout.fileno(), 1 << 16).decode()  # half a character would not decode
        self.assertEqual(text, characters + "\n")


class Refusals(Chat):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write_model("bare", "hi<|im_end|>", positions=64, template=None)
        cls.write_model("good", "hi<|im_end|>", positions=64)
        cls.write_model("strict", "hi<|im_end|>", template=None)
        (cls.folder / "strict/chat_template.jinja").write_text(
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
            "{% endif %}{{ m.content }}{% endfor %}")

    def refuse(self, *words, says, code=2, lines="x\n"):
        stdout, stderr = self.say(lines, *words, code=code)
        self.assertEqual(stdout, "")
        self.assertEqual(stderr.count("error: "), 1, stderr)
        for part in says:
            self.assertIn(part, stderr)

    def test_no_template(self):
        self.refuse("bare", says=["'bare' has no chat template", "--template NAME", *NAMES, "--chat-template FILE"])
        self.assertEqual(self.say("x\n", "bare", "--template", "chatml")[0], "hi\n")

    def test_templates(self):
        self.refuse("good", "--template", "chatlm", says=["there is no 'chatlm'", "did you mean 'chatml'"])
        self.refuse("good", "--chat-template", "nowhere.jinja", says=["there is no file nowhere.jinja"])
        self.refuse("good", "--template", "chatml", "--chat-template", "end.jinja", says=["leave one out"])
        (self.folder / "broken.jinja").write_text("{% for %}")
        self.refuse("good", "--chat-template", "broken.jinja", says=["broken.jinja:1:"])
        self.refuse("good", "--variables", "{", says=["the template's variables"])
        self.refuse("good", "--variables", "[1]", says=["the template's variables are no JSON object"])
        self.refuse("strict", "--system", "Be brief.", says=["stdin:1: ", "System role not supported"])

    def test_folders(self):
        self.refuse("nowhere", says=["'nowhere' does not exist"])
        self.refuse("org/name", says=["hf download org/name --local-dir name"])
        self.refuse("tok", says=["tok"], code=2)
        shutil.copytree(self.folder / "good", self.folder / "untokenized")
        (self.folder / "untokenized/tokenizer.json").unlink()
        self.refuse("untokenized", says=["'untokenized' has no tokenizer.json", "skein generate"])

    def test_flags(self):
        self.refuse("good", "--sytem", "x", says=["did you mean '--system'"])
        self.refuse("good", "other", says=["takes one model, not 'good' and 'other'"])
        self.refuse("good", "--prompt", "x", says=["a line of stdin"])
        self.refuse("good", "--max-new-tokens", "0", says=["--max-new-tokens is 0"])
        self.refuse("good", "--max-length", "9", says=["--max-new-tokens"])
        self.refuse("good", "--top-p", "2", says=["top"])
        ended = run_skein(["chat", "good", "--device", "tpu"], self.folder, code=2)
        self.assertIn("--device is 'tpu'", ended.stderr)

    def test_lines(self):
        self.refuse("good", lines=b"\xc4\xe3\n", says=["stdin:1: invalid UTF-8"], code=4)
        self.refuse("good", lines="y" * 100, says=["stdin:1: the question has", "tokens, and there is room for"])
        stdout, stderr = self.say("x\n\n" + "y" * 100 + "\n", "good", code=2)
        self.assertEqual(stdout, "hi\n")  # what was answered is there
        self.assertIn("stdin:3: the question has", stderr)


class Terminal(Chat):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write_model("says_hi", "hi<|im_end|>", positions=128)
        cls.write_model("endless", cls.ids("ab") + cls.ids("a"), positions=1 << 20)

    def open(self, model, *flags):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(self.folder)
            os.execve(SKEIN, [str(word) for word in self.command(model, *flags)], ENVIRONMENT | {"TERM": "xterm"})
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(self.end)
        self.shown = ""
        self.wait_for("> ")

    def end(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def wait_for(self, text):
        """Until the terminal shows it; what was shown up to then."""
        give_up = time.monotonic() + TIMEOUT
        while text not in self.shown:
            self.assertLess(time.monotonic(), give_up, self.shown[-2000:])
            if select.select([self.terminal], [], [], 0.1)[0]:
                self.shown += os.read(self.terminal, 1 << 16).decode(errors="replace")
        before, self.shown = self.shown.split(text, 1)
        return before

    def type(self, text):
        os.write(self.terminal, text.encode())

    def exit_code(self):
        give_up = time.monotonic() + TIMEOUT
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            self.assertLess(time.monotonic(), give_up)
            time.sleep(0.01)

    def test_questions_and_exit(self):
        self.open("says_hi")
        self.type("hello\n")
        self.assertIn("hi", self.wait_for("> "))
        self.type("y" * 200 + "\n")
        self.assertIn("the question has", self.wait_for("> "))  # and the conversation goes on
        self.type("/rset\n")
        self.assertIn("there is no /rset", self.wait_for("> "))
        self.type("/reset\n")
        self.wait_for("> ")
        self.type("again\n")
        self.assertIn("hi", self.wait_for("> "))
        self.type("/exit\n")
        self.assertEqual(self.exit_code(), 0)

    def test_ctrl_d_leaves(self):
        self.open("says_hi")
        self.type("\x04")
        self.assertEqual(self.exit_code(), 0)

    def test_ctrl_c_stops_an_answer_and_clears_a_line(self):
        self.open("endless", "--max-new-tokens", "100000")
        self.type("hello\n")
        self.wait_for("ababab")
        self.type("\x03")
        self.wait_for("> ")
        self.type("half a line\x03")
        self.wait_for("> ")
        self.type("/exit\n")
        self.assertEqual(self.exit_code(), 0)


if __name__ == "__main__":
    unittest.main()
