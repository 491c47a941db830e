# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Every part that a tokenizer.json may hold, in the order in which the families use it: ids, offsets
and decoded text equal those of `tokenizers`, whose tokenizers are trained here on the spot.

1,000 strings for each by a seed that is printed (SKEIN_SEED sets it), 50,000 with SKEIN_LONG."""
import itertools
import json
import os
import random
import sys
import unicodedata

import pytest
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

from tokenizer_test import (ASSIGNED, LLAMA3, O200K, QWEN2, SPECIAL, byte_level, corpus, lines,  # noqa: F401
                            random_strings)

LONG = bool(os.environ.get("SKEIN_LONG"))
SEED = int(os.environ.get("SKEIN_SEED", random.randrange(10 ** 6)))
STRINGS = 50_000 if LONG else 1000
UNKNOWN = "<unk>"
CORPUS = corpus(lines=1500)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]

CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
          r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
DEEPSEEK_CODER = [r"[\r\n]", r"\s?\p{L}+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$",
                  "[一-龥ࠀ-一가-\ud7a3]+"]
BLOOM = " ?[^(\\s|[.,!?…。,、।۔،])]+"
GPT2_NESTED = r"(?:\p{L}+(?:['’]\p{L}+)*)|(?:\p{N}+[.,]?)+|[^\s\p{L}\p{N}]+|\s+"


def seeded(name):
    return random.Random(f"{SEED} {name}").randrange(10 ** 9)


def train(characters=False, vocab_size=1500, added=(), **parts):
    """A tokenizer of the given parts; of characters with byte fallback, or of the byte alphabet."""
    model = dict(parts.pop("model", {}))
    tokenizer = Tokenizer(models.BPE(**model))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    special = SPECIAL + ([UNKNOWN] + BYTES if characters else [])
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=vocab_size + len(special), min_frequency=2, special_tokens=special,
        show_progress=False, limit_alphabet=300,
        initial_alphabet=[] if characters else pre_tokenizers.ByteLevel.alphabet()))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if t["content"] not in BYTES]
    document["model"] |= model
    tokenizer = Tokenizer.from_str(json.dumps(document))
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    return tokenizer


def llama(vocab_size=1500, bytes_too=True, **parts):
    strip = [decoders.Strip(" ", 1, 0)] if parts.pop("strip", True) else []
    fallback = {"unk_token": UNKNOWN, "fuse_unk": True, "byte_fallback": bytes_too}
    return train(characters=True, vocab_size=vocab_size, **({
        "model": fallback,
        "decoder": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                      decoders.Fuse(), *strip]),
        "post_processor": processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])} | parts))


def marks(scheme, split):
    return pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=split)


def old_marks():
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def bytes_of(*steps, **parts):
    return train(**({"pre_tokenizer": pre_tokenizers.Sequence(list(steps)),
                     "decoder": decoders.ByteLevel()} | parts))


def splits(*patterns, behavior="isolated"):
    return [pre_tokenizers.Split(Regex(pattern), behavior) for pattern in patterns]


def plain():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


FAMILIES = {
    "gpt2": lambda: bytes_of(byte_level()),
    "llama3": lambda: bytes_of(byte_level(LLAMA3), model={"ignore_merges": True}),
    "qwen2": lambda: bytes_of(byte_level(QWEN2), normalizer=normalizers.NFC()),
    "smollm": lambda: bytes_of(pre_tokenizers.Digits(True), byte_level()),
    "llama2": lambda: llama(normalizer=old_marks()),
    "mistral": lambda: llama(pre_tokenizer=marks("first", False)),
    "tinyllama": lambda: llama(pre_tokenizer=marks("always", False)),
    "phi3": lambda: llama(normalizer=old_marks(), added=[
        AddedToken(name, rstrip=True, normalized=False, special=name != "<|user|>")
        for name in ["<|user|>", "<|end|>", "<a>"]]),
    "gemma": lambda: llama(normalizer=normalizers.Replace(" ", "▁"), strip=False,
                           pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous")),
    "t5_like": lambda: llama(pre_tokenizer=marks("always", True), decoder=decoders.Metaspace()),
    "metaspace_never": lambda: llama(pre_tokenizer=marks("never", True), decoder=decoders.Metaspace(
        prepend_scheme="never")),
    "metaspace_after_lowercase": lambda: llama(normalizer=normalizers.Lowercase(),
                                               pre_tokenizer=marks("first", False)),
    "metaspace_after_split": lambda: llama(pre_tokenizer=pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), marks("first", True)])),
    "unknown": lambda: llama(pre_tokenizer=marks("always", True), bytes_too=False),
    "unknown_each": lambda: llama(pre_tokenizer=marks("always", False), model={
        "unk_token": UNKNOWN, "fuse_unk": False}),
    "dropped": lambda: llama(pre_tokenizer=marks("always", False), model={}),
    "llama2_added": lambda: llama(normalizer=old_marks(), added=[
        AddedToken("<a>", normalized=True), AddedToken("<b>", normalized=True, lstrip=True),
        AddedToken("'s", normalized=True, single_word=True)]),
    "falcon": lambda: bytes_of(
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(False), *splits("[0-9][0-9][0-9]")),
    "deepseek": lambda: bytes_of(*splits(*DEEPSEEK), plain()),
    "deepseek_coder": lambda: bytes_of(*splits(*DEEPSEEK_CODER),
                                       pre_tokenizers.Digits(True), plain()),
    "kimi": lambda: bytes_of(*splits(KIMI), plain()),
    "gpt4o": lambda: bytes_of(*splits(O200K), plain()),
    "cl100k": lambda: bytes_of(*splits(CL100K), plain()),
    "bloom": lambda: bytes_of(*splits(BLOOM), plain()),
    "nested": lambda: bytes_of(*splits(GPT2_NESTED), plain()),
    "lines": lambda: bytes_of(*splits(r"^\s+|\s+$|\b\w+\b|(?<=\d)[.,](?=\d)|.\B"), plain()),
    "between": lambda: bytes_of(*splits(r"(?=[A-Z])|(?<=[^\w\s])|x*"), plain()),
    "roberta": lambda: bytes_of(pre_tokenizers.ByteLevel(add_prefix_space=True),
                                post_processor=processors.RobertaProcessing(
        ("<|im_end|>", 2), ("<|im_start|>", 1), trim_offsets=True, add_prefix_space=True)),
    "trimmed": lambda: bytes_of(*splits(LLAMA3), plain(), normalizer=normalizers.NFC(),
                                post_processor=processors.Sequence([
        processors.ByteLevel(trim_offsets=True, add_prefix_space=False),
        processors.TemplateProcessing(single="<|im_start|> $A <|im_end|>", special_tokens=[
            ("<|im_start|>", 1), ("<|im_end|>", 2)])]),
                                added=[AddedToken("<a>", lstrip=True, rstrip=True)]),
    "bert_ends": lambda: bytes_of(plain(), vocab_size=600, post_processor=processors.BertProcessing(
        ("<|im_end|>", 2), ("<|im_start|>", 1))),
    "byte_normalizer": lambda: bytes_of(pre_tokenizers.Split(Regex("Ġ"), "merged_with_next"),
                                        normalizer=normalizers.ByteLevel()),
    "whitespace": lambda: bytes_of(pre_tokenizers.Whitespace(), plain()),
    "whitespace_split": lambda: bytes_of(pre_tokenizers.WhitespaceSplit(), plain()),
    "delimiter": lambda: bytes_of(pre_tokenizers.CharDelimiterSplit("a"), plain()),
    "nfd": lambda: bytes_of(byte_level(), normalizer=normalizers.NFD()),
    "nfc": lambda: bytes_of(byte_level(), normalizer=normalizers.NFC()),
    "nfkc": lambda: bytes_of(byte_level(), normalizer=normalizers.NFKC()),
    "nfkd_stripped": lambda: bytes_of(byte_level(), normalizer=normalizers.Sequence([
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Strip()])),
    "left_stripped": lambda: bytes_of(byte_level(), normalizer=normalizers.Strip(left=True,
                                                                               right=False)),
    "replaced": lambda: bytes_of(byte_level(), normalizer=normalizers.Sequence([
        normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace("a", "bcd"),
        normalizers.Replace(Regex(r"(?<=\d)(?=\d)|,+"), "é")])),
} | {
    f"split_{behavior}{'_inverted' * invert}_{i}": lambda b=behavior, v=invert, p=pattern: bytes_of(
        pre_tokenizers.Split(p, b, v), plain(), vocab_size=600)
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    for invert in [False, True]
    for i, pattern in enumerate([" ", Regex(r"[a-f]+| "), Regex(r"\s")])
} | {
    f"punctuation_{behavior}": lambda b=behavior: bytes_of(pre_tokenizers.Punctuation(b), plain())
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
}


def forms(text):
    """What the normalisers of `tokenizers` make of a text, and what Unicode 14 does."""
    names = ["NFC", "NFD", "NFKC", "NFKD"]
    theirs = [getattr(normalizers, name)().normalize_str(text) for name in names]
    theirs.append(normalizers.Lowercase().normalize_str(text))
    theirs.append(normalizers.StripAccents().normalize_str(text) == "")
    theirs.append(pre_tokenizers.Punctuation("removed").pre_tokenize_str(text) == [])
    theirs.append(pre_tokenizers.Digits().pre_tokenize_str(f"a{text}") != [(f"a{text}", (0, 2))])
    category = unicodedata.category(text)
    ours = [unicodedata.normalize(name, text) for name in names]
    ours.append("".join(c.lower() for c in text))
    ours.append(category[0] == "M")
    ours.append(category[0] == "P" or text in "$+<=>^`|~")
    ours.append(category[0] == "N")
    return theirs, ours


@pytest.fixture(scope="session")
def other_tables():
    """Characters of Unicode 14 for which `tokenizers` has older or newer tables."""
    found = set()
    for character in ASSIGNED:
        theirs, ours = forms(character)
        if theirs != ours:
            found.add(character)
    print(f"{len(found)} characters differ by their tables", file=sys.stderr)
    assert len(found) < 500
    return found


def in_characters(text, offsets):
    """Offsets in bytes as `tokenizers` counts them."""
    place, places = 0, {0: 0}
    for i, character in enumerate(text):
        place += len(character.encode())
        places[place] = i + 1
    return [(places[begin], places[end]) for begin, end in offsets]


def assert_same(lines, folder, theirs, texts):
    expected = theirs.encode_batch(texts)
    found = lines("encode", folder, texts, "--offsets")
    assert len(found) == len(expected)
    for text, mine, other in zip(texts, found, expected):
        assert mine["ids"] == other.ids, f"{text!r}\nskein {mine['ids']}\ntokenizers {other.ids}"
        places = in_characters(text, mine["offsets"])
        assert places == other.offsets, (
            f"{text!r}\ntokens     {other.tokens}\nskein      {places}\ntokenizers {other.offsets}")
    ids = [other.ids for other in expected]
    assert lines("encode", folder, texts) == ids
    some = ids[:10_000] + [random.Random(i).choices(range(theirs.get_vocab_size()), k=i % 9)
                           for i in range(500)]
    for skip in [False, True]:
        flags = ["--skip-special-tokens"] if skip else []
        decoded = theirs.decode_batch(some, skip_special_tokens=skip)
        for mine, other, text in zip(lines("decode", folder, some, *flags), decoded, some):
            assert mine == other, f"{text}\nskein {mine!r}\ntokenizers {other!r}"


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name, lines, tmp_path, other_tables):
    theirs = FAMILIES[name]()
    theirs.save(str(tmp_path / "tokenizer.json"))
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    print(f"SKEIN_SEED={SEED}")
    drop = {ord(character): None for character in other_tables}
    texts = [text.translate(drop) for text in random_strings(STRINGS, seed=seeded(name))]
    assert_same(lines, tmp_path, theirs, texts)


@pytest.mark.parametrize("expression", [r"\w", r"\W", r"\b[^a]", r"[\w]", r"\s", r"\d", r"\p{P}", r"\p{Han}", r"\p{Latin}", r"\p{Cyrillic}",
                                        r"[[a-z]&&[^\p{L}]\p{N}]", r"(?i:[a-fſ])", r"[^\W\d_]"])
def test_every_character_by_itself(expression, lines, tmp_path):
    """Classes agree on all that Unicode 14 has."""
    theirs = bytes_of(*splits(expression, behavior="removed"), plain(), vocab_size=600)
    theirs.save(str(tmp_path / "tokenizer.json"))
    found = lines("encode", tmp_path, ASSIGNED)
    different = [character for character, mine, other
                 in zip(ASSIGNED, found, theirs.encode_batch(ASSIGNED)) if mine != other.ids]
    assert not different, different
