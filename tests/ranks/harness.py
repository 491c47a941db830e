# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""What the tests of whole runs share: tiny models and data made on the spot, starting skein, reading
what it left.

  with Workspace() as work:
      work.run("output_dir=out", ranks=2)
      work.records("out")          # the lines of trainer_log.jsonl
"""
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKEIN = Path(os.environ.get("SKEIN_BUILD", ROOT / "build/release")) / "bin/skein"
TIMEOUT = 120  # seconds that nothing here comes near to
# Tests may run under nohup or behind a script's `&`, and what is ignored stays so.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# A launcher around the tests must not be mistaken for skein's own. One thread per rank: threads that
# spin for each other on a busy machine make tiny models forty times slower.
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NPROC_PER_NODE", "MASTER_ADDR",
           "MASTER_PORT", "MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_CBWR")
# Prepared data goes here, not into the home folder; removed when Python ends.
CACHE = tempfile.TemporaryDirectory(prefix="skein-cache-")
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in FOREIGN and not name.startswith("SKEIN_")}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": CACHE.name}


def llama(**changes):
    """config.json of a tiny Llama: two key heads for four query heads, head not tied."""
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257,
            "hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
            "initializer_range": 0.02, "tie_word_embeddings": False,
            "bos_token_id": 256, "eos_token_id": 256} | changes


def gpt2(**changes):
    """config.json of a tiny GPT-2: head tied, dropout at its default of 0.1."""
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 257,
            "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
            "bos_token_id": 256, "eos_token_id": 256} | changes


def free_port():
    """A port of this machine that nobody has just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_letters():
    """The letter of each byte in byte-level tokenizers."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, others = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte if byte in printable else 256 + others)
        others += byte not in printable
    return letters


def end_of_terminal(pid, terminal):
    """The exit code of the process that a pseudo-terminal was made for, and what is said there until the last one ends."""
    said = b""
    try:
        while True:
            said += os.read(terminal, 65536)
    except OSError:
        pass  # nobody has it open any more
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said


class Workspace:
    """A temporary folder with a model folder, a text file and a recipe c.yaml that names both."""

    def __init__(self, model=None, num_blocks=38, block_size=32, **keys):
        self.folder = Path(tempfile.mkdtemp(prefix="skein-"))
        self.block_size = block_size
        self.write_model(model or llama())
        self.write_text(num_blocks)
        self.keys = {"model_name_or_path": "model", "train_from_scratch": True,
                     "train_file": "text.txt", "block_size": block_size, "device": "cpu",
                     "learning_rate": 1e-3, "logging_steps": 1, "save_steps": 1000} | keys
        self.write_recipe(self.keys)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def __truediv__(self, name):
        return self.folder / name

    def write_model(self, config, name="model"):
        (self / name).mkdir(exist_ok=True)
        (self / name / "config.json").write_text(json.dumps(config))

    def write_text(self, num_blocks, name="text.txt", seed=1):
        """Random letters for so many blocks, the last one short."""
        letters = random.Random(seed).choices("abcdefgh ", k=num_blocks * self.block_size - 20)
        (self / name).write_text("".join(letters))

    def write_tokenizer(self, folder="model", extra=()):
        """Of bytes and special tokens, 259 ids; <|im_end|> ends."""
        tokens = [*SPECIAL_TOKENS, *extra]
        vocab = {letter: byte for byte, letter in byte_letters().items()}
        added = [{"id": 256 + i, "content": token, "special": True, "single_word": False, "lstrip": False,
                  "rstrip": False, "normalized": False} for i, token in enumerate(tokens)]
        pre_tokenizer = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
        (self / folder / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": vocab, "merges": []}}))
        (self / folder / "tokenizer_config.json").write_text(json.dumps(
            {"eos_token": "<|im_end|>", "tokenizer_class": "PreTrainedTokenizerFast"}))

    def write_chat(self, num_rows, name="chat.jsonl", seed=1):
        """Sums of small numbers, in words of the user and the assistant, one to three turns."""
        rng = random.Random(seed)
        rows = []
        for _ in range(num_rows):
            messages = []
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                a, b = rng.randrange(20), rng.randrange(20)
                messages += [{"role": "user", "content": f"{a} + {b}"},
                             {"role": "assistant", "content": str(a + b) + "!" * rng.randrange(9)}]
            rows.append({"messages": messages})
        self.write_rows(rows, name)

    def write_rows(self, rows, name="chat.jsonl"):
        (self / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write_recipe(self, keys, name="c.yaml"):
        # JSON is YAML; one key a line, so that messages have lines to name.
        lines = [f"{key}: {json.dumps(value)}\n" for key, value in keys.items()]
        (self / name).write_text("".join(lines))

    def command(self, *words, ranks=None):
        flags = [] if ranks is None else ["--nproc-per-node", str(ranks)]
        return ["train", "c.yaml", *words, *flags]

    def run(self, *words, ranks=None, code=0):
        """`skein train c.yaml WORDS`, to the end."""
        return run_skein(self.command(*words, ranks=ranks), self.folder, code)

    def start(self, *words, ranks=None):
        """The same in the background; end it with finish()."""
        return start_skein(self.command(*words, ranks=ranks), self.folder)

    def records(self, output):
        log = self / output / "trainer_log.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def wait_for_step(self, process, output, step):
        """Until that many lines are logged."""
        give_up = time.monotonic() + TIMEOUT
        log = self / output / "trainer_log.jsonl"
        while not log.exists() or log.read_bytes().count(b"\n") < step:
            if process.poll() is not None:
                raise AssertionError(f"ended before step {step}:\n{finish(process).stderr}")
            if time.monotonic() > give_up:
                process.kill()
                raise AssertionError(f"no step {step} within {TIMEOUT} s")
            time.sleep(0.002)


class ChatWorkspace(Workspace):
    """The same for stage sft: the model has a tokenizer, and the recipe trains on chat.jsonl in the format chatml."""

    def __init__(self, model=None, num_rows=40, block_size=128, **keys):
        super().__init__(model or llama(vocab_size=260, max_position_embeddings=256), block_size=block_size, **{
            "stage": "sft", "train_file": "chat.jsonl", "template": "chatml"} | keys)
        self.write_tokenizer()
        self.write_chat(num_rows)


def sample(cases, count):
    """Of a matrix of cases a sample, drawn by SKEIN_SEED (tools/run_tests.py prints it); all with SKEIN_LONG."""
    cases = list(cases)
    if "SKEIN_LONG" in os.environ or len(cases) <= count:
        return cases
    drawn = random.Random(os.environ.get("SKEIN_SEED", "0")).sample(range(len(cases)), count)
    return [cases[index] for index in sorted(drawn)]


def run_skein(arguments, folder, code=0, prefix=()):
    """Runs skein and returns its CompletedProcess; another exit code than `code` fails the test."""
    return finish(start_skein(arguments, folder, prefix), code)


def start_skein(arguments, folder, prefix=()):
    """The same in the background; end it with finish()."""
    return subprocess.Popen([*prefix, SKEIN, *map(str, arguments)], cwd=folder, env=ENVIRONMENT,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def finish(process, code=None):
    try:
        stdout, stderr = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()  # the ranks die with the launcher
        stdout, stderr = process.communicate()
        raise AssertionError(f"{process.args} still ran after {TIMEOUT} s\n{stderr}") from None
    if code is not None and process.returncode != code:
        raise AssertionError(f"{' '.join(map(str, process.args))}\nended with {process.returncode}, "
                             f"not {code}; stdout:\n{stdout}\nstderr:\n{stderr}")
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def children(pid):
    """Process ids of its children, zombies left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # ended meanwhile
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def processes_in_session(leader):
    """Those that still run in the session of a process that was started by start()."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # ended meanwhile
        if int(session) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return sorted(found)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(pids, seconds=20):
    """Returns those that are still there."""
    give_up = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < give_up:
        time.sleep(0.02)
    return [pid for pid in pids if is_alive(pid)]


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    data = Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + end])
    return tensors


def write_safetensors(path, tensors):
    """What read_safetensors() returns."""
    header, data = {}, b""
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def num_elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def relative(found, expected):
    return abs(found - expected) / abs(expected)
