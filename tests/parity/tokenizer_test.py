# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Tokenizers in both directions: what skein trains gives the same ids in `tokenizers`, and what
`tokenizers` writes gives the same ids in skein."""
import itertools
import json
import random
import subprocess
import unicodedata

import pytest
import transformers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# skein's tables are those of Unicode 14, as are Python 3.11's: characters that came later may be
# split differently, and are left out.
ASSIGNED = [chr(c) for c in range(0x110000)
            if unicodedata.category(chr(c)) not in ("Cn", "Cs") and (c < 0xE000 or c > 0xF8FF)]


def corpus(seed=0, lines=4000):
    """Words of a small language that follow Zipf's law, with code, numbers, Chinese and emoji."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bcdfglmnprst" for b in ("a", "e", "i", "o", "u", "an", "er", "ing")]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(3000)]
    weights = [1 / (i + 1) for i in range(len(words))]
    hanzi = [chr(c) for c in range(0x4E00, 0x4E00 + 400)]
    extra = ["for (int i = 0; i < n; ++i) {", "    return x;\n}", "it's", "WE'LL", "3.14159",
             "2024-01-02", "😀😃", "naïve café", "def f(x):\n\treturn x**2\n\n", "Привет мир"]
    text = []
    for _ in range(lines):
        line = rng.choices(words, weights, k=rng.randint(3, 20))
        if rng.random() < 0.3:
            line.append(rng.choice(extra))
        if rng.random() < 0.2:
            line.append("".join(rng.choices(hanzi, weights[:400], k=rng.randint(2, 12))) + "。")
        text.append(" ".join(line).capitalize() + rng.choice([".", "?", "!", ",", ""]))
    return text


def random_strings(count, seed=1):
    rng = random.Random(seed)
    lines = corpus(seed + 1, 300)
    whitespace = [" ", " ", " ", "\n", "\t", "\r", "\r\n", "\u00a0", "\u3000", "\u180e", "\u2003",
                  "\u0085", "\u2028", "\u200b", "\x0b", "\x0c", "\x1c", "\ufeff"]
    tricky = ["'s", "'S", "'ſ", "'ll", "'LL", "'re", "'", "’s", "e\u0301", "é", "가", "가",
              "Å", "Ω", "ﬁ", "\u0344", "👩‍👩‍👧", "🇩🇪", "½", "٣", "Ⅷ", "x²", "_", "<", "|",
              "<|", "|>", "<a>", "<b>", "\x00", "\x7f", "ẛ̣", "अनुच्छेद", "ไทย"]

    def piece():
        kind = rng.random()
        if kind < 0.30:
            line = rng.choice(lines)
            start = rng.randrange(len(line))
            return line[start:start + rng.randint(1, 20)]
        if kind < 0.50:
            return "".join(rng.choices(whitespace, k=rng.randint(1, 4)))
        if kind < 0.65:
            return rng.choice(tricky)
        if kind < 0.75:
            return rng.choice(SPECIAL)
        if kind < 0.85:
            return "".join(rng.choices(ASSIGNED, k=rng.randint(1, 3)))
        if kind < 0.93:
            return str(rng.randint(0, 10 ** rng.randint(1, 12)))
        return rng.choice("abcXYZ !\"#$%&()*+,-./:;=?@[\\]^`{}~") * rng.randint(1, 90)

    return ["".join(piece() for _ in range(rng.randint(0, 8))) for _ in range(count)]


@pytest.fixture(scope="session")
def lines(skein):
    """lines("encode", folder, values) → the answers, all from one process."""

    def run(verb, folder, values, *flags):
        text = "".join(json.dumps(value) + "\n" for value in values)
        result = subprocess.run([skein, "tokenizer", verb, folder, "--lines", *flags],
                                input=text.encode(), capture_output=True, timeout=300)
        assert result.returncode == 0, result.stderr.decode()
        return [json.loads(line) for line in result.stdout.decode().split("\n")[:-1]]

    return run


def assert_same(lines, folder, theirs, texts):
    encodings = theirs.encode_batch(texts)
    expected = [encoding.ids for encoding in encodings]
    got = lines("encode", folder, texts)
    assert len(got) == len(expected)
    for text, a, b in zip(texts, got, expected):
        assert a == b, f"{text!r}:\nskein      {a}\ntokenizers {b}"
    assert got == expected
    some = expected[:5000]
    assert lines("decode", folder, some) == theirs.decode_batch(some, skip_special_tokens=False)
    assert (lines("decode", folder, some, "--skip-special-tokens")
            == theirs.decode_batch(some, skip_special_tokens=True))


def train_theirs(pre_tokenizer, normalizer=None, vocab_size=1500, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_level(pattern=None, **options):
    if pattern is None:
        return pre_tokenizers.ByteLevel(**({"add_prefix_space": False} | options))
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), **({"behavior": "isolated"} | options)),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def save(tokenizer, folder, merges_as_text=False):
    tokenizer.save(str(folder / "tokenizer.json"))
    if merges_as_text:
        document = json.loads((folder / "tokenizer.json").read_text())
        document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]
        (folder / "tokenizer.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="session")
def ours(run_skein, tmp_path_factory):
    """A tokenizer that skein trained on the corpus."""
    folder = tmp_path_factory.mktemp("ours")
    with open(folder / "corpus.jsonl", "w") as file:
        file.writelines(json.dumps({"text": line}) + "\n" for line in corpus())
    run_skein(["tokenizer", "train", "--input", "corpus.jsonl", "--vocab-size", 1500, "--out", ".",
               "--special-token", *SPECIAL[1:]], folder)
    return folder


def test_our_tokenizer_in_tokenizers(ours, lines):
    assert_same(lines, ours, Tokenizer.from_file(str(ours / "tokenizer.json")),
                random_strings(50_000))


def test_our_tokenizer_in_transformers(ours, lines):
    theirs = transformers.AutoTokenizer.from_pretrained(ours)
    assert theirs.eos_token == theirs.bos_token == theirs.unk_token == "<|endoftext|>"
    assert theirs.eos_token_id == 0
    assert len(theirs) == 1500
    texts = random_strings(2000, seed=5)
    assert lines("encode", ours, texts) == theirs(texts)["input_ids"]


def test_our_trainer_learns_what_theirs_does(ours):
    mine = Tokenizer.from_file(str(ours / "tokenizer.json"))
    theirs = train_theirs(byte_level())
    held_out = corpus(seed=7, lines=500)
    count = lambda tokenizer: sum(len(e.ids) for e in tokenizer.encode_batch(held_out))
    assert count(mine) <= 1.02 * count(theirs)
    assert mine.get_vocab() == theirs.get_vocab()


def test_a_text_file_is_learned_as_one_text(run_skein, tmp_path):
    # Larger than a chunk of the reader.
    text = "\n\n".join(corpus(lines=40_000))
    (tmp_path / "corpus.txt").write_text(text)
    assert len(text.encode()) > 3 << 20
    run_skein(["tokenizer", "train", "--input", "corpus.txt", "--vocab-size", 600, "--out", "."],
              tmp_path)
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = byte_level()
    theirs.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=600, min_frequency=2, special_tokens=SPECIAL[:1], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert (Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab()
            == theirs.get_vocab())


@pytest.mark.parametrize("name, build", {
    "gpt2": lambda: train_theirs(byte_level()),
    "gpt2_prefix_space": lambda: train_theirs(byte_level(add_prefix_space=True)),
    "llama3": lambda: train_theirs(byte_level(LLAMA3), ignore_merges=True),
    "qwen2": lambda: train_theirs(byte_level(QWEN2), normalizers.NFC()),
    "o200k": lambda: train_theirs(byte_level(O200K)),
    "removed_inverted": lambda: train_theirs(byte_level(LLAMA3, behavior="removed", invert=True)),
    "letters_only": lambda: train_theirs(byte_level(r"[^\p{L}]+", behavior="removed")),
    "smollm": lambda: train_theirs(pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), byte_level()])),
    "no_regex": lambda: train_theirs(byte_level(use_regex=False), vocab_size=600),
    "qwen2_sequence": lambda: train_theirs(byte_level(QWEN2),
                                           normalizers.Sequence([normalizers.NFC()])),
}.items())
@pytest.mark.parametrize("merges_as_text", [False, True])
def test_their_tokenizers(name, build, merges_as_text, lines, tmp_path):
    folder = save(build(), tmp_path, merges_as_text)
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert_same(lines, folder, theirs, random_strings(6000, seed=len(name)))


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC()])
def test_added_tokens_with_every_flag(normalizer, lines, tmp_path):
    theirs = train_theirs(byte_level(QWEN2), normalizer, vocab_size=600)
    contents = []
    for i, flags in enumerate(itertools.product([False, True], repeat=5)):
        special, single_word, lstrip, rstrip, normalized = flags
        # With a prefix of another one, with an accent in both forms, and plain words.
        content = ["<a%d>", "word%d", "e\u0301%d", "é%d", "<a%d><", " sp%d", "a\u0301%d"][i % 7] % i
        contents.append(content)
        token = AddedToken(content, single_word=single_word, lstrip=lstrip, rstrip=rstrip,
                           normalized=normalized, special=special)
        (theirs.add_special_tokens if special else theirs.add_tokens)([token])
    folder = save(theirs, tmp_path)
    rng = random.Random(3)
    between = ["", "", " ", "  ", "\n", "\u3000", "x", "é", "_", "-", "5", "\u0301", "Ⓐ", "\u200d"]
    texts = ["".join(rng.choice(contents) + rng.choice(between) + rng.choice(between)
                     for _ in range(rng.randint(1, 6))) for _ in range(20_000)]
    assert_same(lines, folder, Tokenizer.from_file(str(folder / "tokenizer.json")), texts)


def test_post_processor(lines, tmp_path):
    theirs = train_theirs(byte_level(LLAMA3), vocab_size=600)
    theirs.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|im_start|> $A <|im_end|>", pair="$A $B",
                                      special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)])])
    folder = save(theirs, tmp_path)
    texts = random_strings(500)
    assert_same(lines, folder, theirs, texts)
    plain = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    assert lines("encode", folder, texts, "--no-special-tokens") == plain


@pytest.mark.parametrize("flags", [{}, {"add_bos_token": True}, {"add_eos_token": True},
                                   {"add_bos_token": False, "add_eos_token": True}])
def test_the_post_processor_wins_over_the_configuration(flags, lines, tmp_path):
    theirs = train_theirs(byte_level(LLAMA3), vocab_size=600)
    theirs.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    folder = save(theirs, tmp_path)
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|im_start|>",
         "eos_token": {"content": "<|im_end|>", "__type": "AddedToken"}} | flags))
    expected = transformers.AutoTokenizer.from_pretrained(folder)
    texts = random_strings(200)
    assert lines("encode", folder, texts) == expected(texts)["input_ids"]


def test_bytes_that_the_vocabulary_lacks(lines, tmp_path):
    for unknown in [{}, {"unk_token": "<|endoftext|>"},
                    {"unk_token": "<|endoftext|>", "fuse_unk": True}]:
        theirs = Tokenizer(models.BPE(**unknown))
        theirs.pre_tokenizer = byte_level()
        theirs.decoder = decoders.ByteLevel()
        theirs.train_from_iterator(["only ascii here, only these letters"] * 3,
                                   trainers.BpeTrainer(vocab_size=80, special_tokens=SPECIAL,
                                                       show_progress=False))
        assert_same(lines, save(theirs, tmp_path), theirs, random_strings(3000))


def test_invalid_utf8_reads_as_python_does(skein, ours):
    rng = random.Random(0)
    theirs = Tokenizer.from_file(str(ours / "tokenizer.json"))
    for _ in range(40):
        data = bytes(rng.choices([0x20, 0x41, 0x80, 0xBF, 0xC2, 0xE0, 0xA0, 0xED, 0xF0, 0x90, 0xF4,
                                  0xFF, 0xE2, 0x82, 0xAC], k=30))
        result = subprocess.run([skein, "tokenizer", "encode", ours, "--json"], input=data,
                                capture_output=True, check=True)
        assert json.loads(result.stdout) == theirs.encode(data.decode(errors="replace")).ids
