# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Rows of judged answers and their tokens by transformers, tiny models, and a plain training loop: what the tests of
stages dpo, rm and kto share."""
import dataclasses
import json
import random
import warnings

import numpy
import pytest
import torch
import transformers

from conftest import decoder_config, llama_config, save_random_model, train_tokenizer
from sft_test import text
from train_test import load_model, make_optimizer

STEPS = 30
SETTINGS = dict(learning_rate=1e-3, weight_decay=0.1, adam_beta1=0.9, adam_beta2=0.98, adam_epsilon=1e-5,
                max_grad_norm=1.0, warmup_steps=5)
# Losses may differ by so much, and metrics by this share of themselves or of 1.
TOLERANCES = {"float32": 1e-4, "float64": 1e-8}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
SPECIAL = [*TOKENS.values(), "<|im_start|>", "<|im_end|>"]
PAD = SPECIAL.index("<pad>")  # no row has it
SIZES = dict(vocab_size=330, max_position_embeddings=256)
CONFIGS = {"llama": lambda **changes: llama_config(**(SIZES | changes)),
           "qwen2": lambda **changes: decoder_config("Qwen2", **(SIZES | changes))}
CUTOFF = 60  # some answers lose their end
WHOLE = 256
LORA = dict(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"])


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    rng = random.Random(0)
    train_tokenizer(folder, [text(rng) for _ in range(200)], SPECIAL, TOKENS, vocab_size=320)
    return folder


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder, run_skein):
    """Transformers' own, with the template that `template: chatml` names."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.chat_template = run_skein(["template", "show", "chatml"], tokenizer_folder).stdout.removesuffix("\n")
    assert tokenizer.pad_token_id == PAD
    return tokenizer


@dataclasses.dataclass(eq=False)
class Answer:
    """An answer behind its prompt."""
    ids: torch.Tensor
    prompt: int  # ids of it
    reference: torch.Tensor = None  # log p of each token of the answer

    def cut(self, length):
        assert self.prompt < length
        return Answer(self.ids[:length], self.prompt)


@dataclasses.dataclass(eq=False)
class Pair:
    chosen: Answer
    rejected: Answer
    margin: float = 0.0


@dataclasses.dataclass(eq=False)
class Judged:
    answer: Answer
    desirable: bool
    mismatched: Answer = None  # the same prompt with the answer of the sample before


def said(role, content):
    return {"role": role, "content": content}


def shared_gpt(message):
    return {"from": {"system": "system", "user": "human", "assistant": "gpt"}[message["role"]],
            "value": message["content"]}


def questions(rng, form):
    """A prompt, text or messages, and two answers to it."""
    if form == "text":  # no token holds parts of both
        return f"Tea {text(rng).strip()}?", f" the {text(rng).strip()}", f" of {text(rng).strip()}"
    prompt = [said("system", text(rng))] if rng.random() < 0.3 else []
    if rng.random() < 0.3:  # an answer that nobody has judged
        prompt += [said("user", text(rng)), said("assistant", text(rng))]
    prompt.append(said("user", text(rng)))
    return prompt, f"the {text(rng)} {text(rng)}", f"of {text(rng)}"


def pair_row(form, prompt, chosen, rejected):
    """One of the forms that docs/data.md lists."""
    if form == "text":
        return {"prompt": prompt, "chosen": chosen, "rejected": rejected}
    better, worse = said("assistant", chosen), said("assistant", rejected)
    return {"messages": {"prompt": prompt, "chosen": [better], "rejected": [worse]},
            "whole": {"chosen": [*prompt, better], "rejected": [*prompt, worse]},
            "sharegpt": {"conversations": [shared_gpt(message) for message in prompt],
                         "chosen": shared_gpt(better), "rejected": shared_gpt(worse)}}[form]


def encode(tokenizer, prompt, answer):
    if isinstance(prompt, str):
        begin = tokenizer(prompt)["input_ids"]
        ids = tokenizer(prompt + answer)["input_ids"] + [tokenizer.eos_token_id]
    else:
        begin = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
        encoded = tokenizer.apply_chat_template([*prompt, said("assistant", answer)], return_dict=True,
                                                return_assistant_tokens_mask=True)
        ids = encoded["input_ids"]
        assert all(encoded["assistant_masks"][len(begin):])  # what the template marks
    assert ids[:len(begin)] == begin and len(ids) > len(begin)
    return Answer(torch.tensor(ids), len(begin))


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def examples(rng, tokenizer, forms, count):
    """(form, prompt, answers, their tokens). Some answers are too long, of all CUTOFF leaves something."""
    found = 0
    while found < count:
        form = forms[found % len(forms)]
        prompt, *answers = questions(rng, form)
        if found % 5 == 3:
            answers = [f"{answer} {' '.join(text(rng) for _ in range(20))}" for answer in answers]
        encoded = [encode(tokenizer, prompt, answer) for answer in answers]
        if encoded[0].prompt < CUTOFF - 2:
            yield form, prompt, answers, encoded
            found += 1


def write_pairs(path, tokenizer, forms=("messages", "text", "whole", "sharegpt"), count=12, cutoff=CUTOFF,
                margins=False, seed=3):
    """Writes a file of pairs. Returns them and their rows."""
    rng = random.Random(seed)
    rows, pairs = [], []
    for form, prompt, answers, encoded in examples(rng, tokenizer, forms, count):
        rows.append(pair_row(form, prompt, *answers))
        pairs.append(Pair(*(answer.cut(cutoff) for answer in encoded)))
        if margins and (margins == "all" or len(rows) % 3):
            rows[-1]["margin"] = pairs[-1].margin = rng.choice([0.25, 0.5, 2.0])
    assert any(len(answer.ids) == cutoff for answer in answers_of(pairs)) == (cutoff == CUTOFF)
    assert not any(torch.equal(pair.chosen.ids, pair.rejected.ids) for pair in pairs)
    write_lines(path, rows)
    return pairs, rows


def write_judged(path, tokenizer, forms=("messages", "text", "conversation"), count=12, seed=4):
    """Writes a file of answers that were judged alone. Returns them and their rows."""
    rng = random.Random(seed)
    rows, whole = [], []
    for form, prompt, answers, encoded in examples(rng, tokenizer, forms, count):
        desirable = rng.random() < 0.6
        whole.append(Judged(encoded[not desirable], desirable))
        answer = answers[not desirable]
        completion = answer if form == "text" else [said("assistant", answer)]
        rows.append({"messages": [*prompt, *completion]} if form == "conversation" else
                    {"prompt": prompt, "completion": completion})
        rows[-1]["label"] = desirable
    samples = []
    for sample, before in zip(whole, [whole[-1], *whole[:-1]]):
        own, other = sample.answer, before.answer
        joined = Answer(torch.cat([own.ids[:own.prompt], other.ids[other.prompt:]]), own.prompt)
        samples.append(Judged(own.cut(CUTOFF), sample.desirable, joined.cut(CUTOFF)))
    for answers in ([sample.answer for sample in samples], [sample.mismatched for sample in samples]):
        assert any(len(answer.ids) == CUTOFF for answer in answers)
    assert len({sample.desirable for sample in samples}) == 2
    write_lines(path, rows)
    return samples, rows


def save_model(tmp_path, family="llama"):
    return save_random_model(CONFIGS[family](), tmp_path / "model", 5)


def save_scorer(config, folder, seed=0):
    """As save_random_model, of a model that scores."""
    config.num_labels, config.pad_token_id = 1, PAD
    model = transformers.AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if is_norm else 0.1 * noise)
    model.save_pretrained(folder)
    return folder


def save_neighbour(folder, out, seed=9):
    """Another model that is not far: a reference that differs from the start."""
    model = load_model(folder, "float32")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.03 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(out)
    return out


def side_by_side(answers):
    """Padding lies behind all that counts: nothing before it sees it."""
    return torch.nn.utils.rnn.pad_sequence([answer.ids for answer in answers], batch_first=True, padding_value=PAD)


def token_numbers(model, answers):
    """Of each answer log p of its tokens, and of each of them the mean logit over the vocabulary."""
    ids = side_by_side(answers)
    logits = model(input_ids=ids).logits[:, :-1]
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].double()
    means = logits.detach().mean(-1).double()
    places = [slice(answer.prompt - 1, len(answer.ids) - 1) for answer in answers]
    return [row[place] for row, place in zip(log_probs, places)], [row[place] for row, place in zip(means, places)]


def look(model, answers):
    """What a reference says, once for all."""
    with torch.no_grad():
        for answer, log_probs in zip(answers, token_numbers(model, answers)[0], strict=True):
            answer.reference = log_probs


def answers_of(pairs):
    """The chosen ones first."""
    return [pair.chosen for pair in pairs] + [pair.rejected for pair in pairs]


def train_plainly(model, steps, loss_of, settings=SETTINGS):
    """One record for each step, a list of samples; loss_of(model, samples) → (loss, metrics)."""
    optimizer = make_optimizer(model, settings)
    scheduler = transformers.get_scheduler("linear", optimizer, num_warmup_steps=settings["warmup_steps"],
                                           num_training_steps=len(steps))
    records = []
    for samples in steps:
        loss, metrics = loss_of(model, samples)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"])
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        records.append({"loss": loss.item(), "grad_norm": norm.item()} | metrics)
    return records


def mean_of(values):
    return torch.stack(list(values)).double().mean().item()


def share_of(chosen, rejected):
    """How often the chosen one is above the rejected one, and how often rounding decides that."""
    margins = chosen - rejected
    return (margins > 0).double().mean().item(), (margins.abs() < 1e-4).double().mean().item()


def assert_same_metrics(found, expected, tolerance, prefix=""):
    """A metric of nobody (None) is left out."""
    expected = dict(expected)
    ties = expected.pop("ties", 0)
    for key, value in expected.items():
        where = (found.get("step"), prefix + key)
        if value is None:
            assert prefix + key not in found, where
        elif key in ("rewards/accuracies", "accuracy"):
            assert found[prefix + key] == pytest.approx(value, rel=0, abs=ties + 1e-6), where
        elif key == "loss":
            assert found[prefix + key] == pytest.approx(value, rel=tolerance, abs=0), where
        else:
            relative = 20 * tolerance if key == "grad_norm" else tolerance
            assert found[prefix + key] == pytest.approx(value, rel=relative, abs=tolerance), where


def assert_same_records(records, expected, tolerance=TOLERANCES["float32"]):
    records = [record for record in records if "loss" in record]
    assert [record["step"] for record in records] == list(range(1, len(expected) + 1))
    for record, wanted in zip(records, expected):
        assert_same_metrics(record, wanted, tolerance)


def run_keys(tmp_path, stage, tokenizer_folder, **keys):
    return dict(stage=stage, model_name_or_path=tmp_path / "model", train_file=tmp_path / "rows.jsonl",
                tokenizer_name_or_path=tokenizer_folder, template="chatml", cutoff_len=CUTOFF,
                lr_scheduler_type="linear", save_strategy="no", max_steps=STEPS) | SETTINGS | keys


# All samples in every step, over two ranks and two micro-batches: their order means nothing.
EVERY = dict(ranks=2, per_device_train_batch_size=3, gradient_accumulation_steps=2)


def batches_in_order(values, found, size):
    """Batches of samples as a run reads them, told apart by a metric: `found` is that of steps of one sample each."""
    values, found = numpy.array(values), numpy.array(found)
    order = [int(abs(values - value).argmin()) for value in found]
    batches = []
    for begin in range(0, len(order), len(values)):
        epoch = order[begin:begin + len(values)]
        assert sorted(epoch) == list(range(len(values)))
        batches += [epoch[i:i + size] for i in range(0, len(epoch), size)]
    return batches


def trl_arguments(kind, tmp_path, **keys):
    """Of a trainer of trl that makes one batch of everything on the CPU, in fp32."""
    return kind(output_dir=str(tmp_path / "trl"), use_cpu=True, bf16=False, gradient_checkpointing=False,
                report_to="none", disable_tqdm=True, per_device_train_batch_size=64, **keys)


def trl_record(trainer):
    """Loss, gradient norm and metrics of the first batch, by trl's own functions."""
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1e30)
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    return {"loss": loss.item(), "grad_norm": norm.item()} | metrics
