# SPDX-License-Identifier: Apache-2.0
# Copyright the skein authors.
"""Losses of sampled completions, with their gradients and metrics, against the functions of trl's GRPOTrainer and
RLOOTrainer; advantages against numpy. All in float64."""
import collections
import json
import subprocess
import types

import numpy
import pytest
import torch
from trl import GRPOTrainer, RLOOTrainer

from conftest import BUILD

LENGTHS = [3, 1, 7, 2, 5, 4]
LONGEST = 9  # tokens; no completion reaches it
TOKENS = sum(LENGTHS)


def ask(name, **keys):
    ended = subprocess.run([BUILD / "tests/policy_trace"], input=json.dumps({"ask": name} | keys), capture_output=True,
                           text=True)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def rollout(seed=0):
    """Numbers of tokens, completion by completion, and an advantage of each completion."""
    generator = torch.Generator().manual_seed(seed)
    noise = lambda size, count=TOKENS: size * torch.randn(count, generator=generator, dtype=torch.float64)
    log_probs = noise(1) - 3
    old = log_probs + noise(0.3)
    return dict(log_probs=log_probs, old_log_probs=old, rollout_log_probs=old + noise(0.3),
                reference_log_probs=log_probs + noise(0.5), entropy=noise(1).abs(), advantages=noise(1, len(LENGTHS)))


def padded(values, fill=0.0):
    """Side by side, as trl has them."""
    rows = torch.full((len(LENGTHS), LONGEST), fill, dtype=values.dtype)
    for row, own in zip(rows, values.split(LENGTHS)):
        row[:len(own)] = own
    return rows


def together(rows):
    return torch.cat([row[:length] for row, length in zip(rows, LENGTHS)])


def skein_loss(numbers, weights, options):
    keys = dict(numbers, advantages=torch.repeat_interleave(numbers["advantages"], torch.tensor(LENGTHS)))
    if options.get("correction", "none") == "none":
        del keys["rollout_log_probs"]
    return ask("policy_loss", lengths=LENGTHS, weights=weights, options=options,
               **{name: value.tolist() for name, value in keys.items()})


class Accelerator:
    """Of one process."""
    num_processes = 1
    sync_gradients = True
    gather = gather_for_metrics = staticmethod(lambda values: values)
    reduce = staticmethod(lambda values, reduction: values)


def trainer_of(log_probs, entropy, options):
    """What trl's loss functions read of a trainer. The model's numbers are given."""
    args = types.SimpleNamespace(delta=options.get("delta"), use_bias_correction_kl=False, steps_per_generation=1)
    is_corrected = options.get("correction", "none") != "none"
    return types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (log_probs, entropy, None), args=args,
        accelerator=Accelerator(), model=types.SimpleNamespace(training=True), aux_loss_enabled=False,
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, _entropy_bonus_enabled=False,
        use_adaptive_entropy=False, use_vllm=is_corrected, vllm_importance_sampling_correction=is_corrected,
        importance_sampling_level=options.get("importance_sampling_level", "token"), beta=options.get("beta", 0.0),
        loss_type=options.get("loss_type", "dapo"), epsilon_low=options.get("epsilon", 0.2),
        epsilon_high=options.get("epsilon_high", 0.2), max_completion_length=options.get("max_completion_length"),
        current_gradient_accumulation_steps=1, _metrics={"train": collections.defaultdict(list)})


def trl_loss(trainer_class, numbers, weights, options):
    mask = padded(torch.ones(TOKENS, dtype=torch.float64)) * torch.tensor(weights, dtype=torch.float64)[:, None]
    log_probs = padded(numbers["log_probs"]).requires_grad_()
    trainer = trainer_of(log_probs, padded(numbers["entropy"]), options)
    old = padded(numbers["old_log_probs"])
    prompts = torch.ones(len(LENGTHS), 2, dtype=torch.long)
    inputs = dict(prompt_ids=prompts, prompt_mask=prompts, completion_ids=mask.long(), completion_mask=mask,
                  advantages=numbers["advantages"], old_per_token_logps=old, old_logps=(old * mask).sum(1),
                  ref_per_token_logps=padded(numbers["reference_log_probs"]), num_items_in_batch=mask.sum())
    correction = torch.exp(old - padded(numbers["rollout_log_probs"]))
    cap = options.get("correction_cap", 3.0)
    inputs["importance_sampling_ratio"] = {
        "truncate": correction.clamp(max=cap), "mask": correction.masked_fill(correction > cap, 0.0),
        "none": None}[options.get("correction", "none")]
    loss = trainer_class._compute_loss(trainer, None, inputs)
    loss.backward()
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    return {"loss": loss.item(), "gradient": together(log_probs.grad).tolist(), "metrics": metrics}


def assert_same(found, expected, metrics):
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-10, abs=1e-12)
    assert found["gradient"] == pytest.approx(expected["gradient"], rel=1e-10, abs=1e-12)
    assert any(found["gradient"])
    for name in metrics:
        assert found["metrics"][name] == pytest.approx(expected["metrics"][name], rel=1e-6, abs=1e-12), name


CASES = {
    "dapo": {},
    "grpo": dict(loss_type="grpo"),
    "bnpo": dict(loss_type="bnpo", epsilon=0.1, epsilon_high=0.3),
    "dr_grpo": dict(loss_type="dr_grpo", max_completion_length=LONGEST),
    "luspo": dict(loss_type="luspo", importance_sampling_level="sequence"),
    "cispo": dict(loss_type="cispo", epsilon_high=1.1),
    "delta": dict(delta=1.3),
    "beta": dict(loss_type="grpo", beta=0.2),
    "beta of all tokens": dict(beta=0.2),
    "gspo": dict(loss_type="grpo", importance_sampling_level="sequence", epsilon=0.05, epsilon_high=0.05),
    "gspo of all tokens": dict(importance_sampling_level="sequence", epsilon=0.05, epsilon_high=0.05, beta=0.1),
    "cispo of sequences": dict(loss_type="cispo", importance_sampling_level="sequence", epsilon_high=1.05),
    "truncate": dict(correction="truncate", correction_cap=1.1),
    "mask": dict(loss_type="grpo", correction="mask", correction_cap=1.1, beta=0.1),
}
CLIPPED = ("clip_ratio/low_mean", "clip_ratio/low_min", "clip_ratio/high_mean", "clip_ratio/high_max",
           "clip_ratio/region_mean")


@pytest.mark.parametrize("weights", [[1] * 6, [1, 1, 0, 1, 1, 0]], ids=["all", "masked"])
@pytest.mark.parametrize("case", CASES)
def test_losses_of_grpo(case, weights):
    options, numbers = CASES[case], rollout()
    expected = trl_loss(GRPOTrainer, numbers, weights, options)
    metrics = ["entropy", *(["kl"] if "beta" in options else [])]
    # Of whole completions trl counts those that are masked out too.
    if "importance_sampling_level" not in options or all(weights):
        metrics += ["cispo_clip_ratio"] if options.get("loss_type") == "cispo" else CLIPPED
    assert_same(skein_loss(numbers, weights, options), expected, metrics)
    if options.get("loss_type") != "cispo":
        assert expected["metrics"]["clip_ratio/region_mean"] > 0


def test_losses_of_rloo():
    numbers = rollout()
    numbers["old_log_probs"] = numbers["log_probs"] + 0.2 * (numbers["old_log_probs"] - numbers["log_probs"])
    options = dict(loss_type="grpo", importance_sampling_level="sequence_sum")
    expected = trl_loss(RLOOTrainer, numbers, [1] * 6, options)
    assert_same(skein_loss(numbers, [1] * 6, options), expected, ["entropy", *CLIPPED])


def test_dual_clip():
    """VERL's: of negative advantages no ratio counts more than c."""
    numbers = rollout()
    numbers["advantages"] = -numbers["advantages"].abs()
    leaf = numbers["log_probs"].clone().requires_grad_()
    ratio, a = torch.exp(leaf - numbers["old_log_probs"]), torch.repeat_interleave(numbers["advantages"],
                                                                                 torch.tensor(LENGTHS))
    plain = torch.max(-a * ratio, -a * ratio.clamp(0.8, 1.2))
    loss = torch.min(plain, -a * 1.25).mean()
    loss.backward()
    assert (plain > -a * 1.25).any()
    found = skein_loss(numbers, [1] * 6, dict(loss_type="ppo", clip_ratio_c=1.25))
    assert_same(found, {"loss": loss.item(), "gradient": leaf.grad.tolist()}, [])


@pytest.mark.parametrize("clip_range", [0.2, 0.0])
def test_value_loss(clip_range):
    generator = torch.Generator().manual_seed(2)
    values, returns, old = torch.randn(3, TOKENS, generator=generator, dtype=torch.float64)
    weights = [1, 1, 0, 1, 1, 1]
    mask = torch.repeat_interleave(torch.tensor(weights), torch.tensor(LENGTHS))
    leaf = values.clone().requires_grad_()
    near = torch.clamp(leaf, old - clip_range, old + clip_range) if clip_range else leaf
    loss = (0.5 * torch.max((leaf - returns) ** 2, (near - returns) ** 2) * mask).sum() / mask.sum()
    loss.backward()
    found = ask("value_loss", lengths=LENGTHS, weights=weights, values=values.tolist(), returns=returns.tolist(),
                old_values=old.tolist(), clip_range=clip_range)
    assert_same(found, {"loss": loss.item(), "gradient": leaf.grad.tolist()}, [])


REWARDS = numpy.random.default_rng(1).choice([0.0, 0.1, 0.5, 1.0], (9, 4))
REWARDS[2] = 0.1  # nothing to learn


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_of_groups(scale):
    lead = REWARDS - REWARDS.mean(1, keepdims=True)
    deviation = {"group": REWARDS.std(1, ddof=1, keepdims=True), "batch": REWARDS.std(ddof=1)}
    expected = lead if scale == "none" else lead / (deviation[scale] + 1e-4)
    found = numpy.array(ask("group_advantages", rewards=REWARDS.ravel().tolist(), size=4, scale=scale)).reshape(9, 4)
    numpy.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert not found[2].any()


def test_advantages_without_some_rewards():
    """As trl has it: what nobody has scored is in no mean, and learns nothing."""
    rewards = REWARDS.copy()
    rewards[[0, 4, 4], [1, 0, 3]] = numpy.nan
    lead = rewards - numpy.nanmean(rewards, 1, keepdims=True)
    expected = numpy.nan_to_num(lead / (numpy.nanstd(rewards, 1, ddof=1, keepdims=True) + 1e-4))
    asked = [None if numpy.isnan(value) else value for value in rewards.ravel()]
    numpy.testing.assert_allclose(ask("group_advantages", rewards=asked, size=4), expected.ravel(), rtol=1e-10,
                                  atol=1e-12)


def test_advantages_of_rloo():
    others = (REWARDS.sum(1, keepdims=True) - REWARDS) / 3
    found = ask("leave_one_out", rewards=REWARDS.ravel().tolist(), size=4)
    numpy.testing.assert_allclose(found, (REWARDS - others).ravel(), rtol=1e-10, atol=1e-12)


ESTIMATORS = {"k1": lambda r: r, "k2": lambda r: r ** 2 / 2, "k3": lambda r: numpy.exp(-r) - 1 + r}


def whitened(values):
    return (values - values.mean()) / numpy.sqrt(values.var(ddof=1) + 1e-8)


@pytest.mark.parametrize("gamma, lam", [(1.0, 0.95), (0.97, 0.6), (1.0, 1.0)])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_advantages_of_ppo(estimator, gamma, lam):
    rng = numpy.random.default_rng(3)
    log_probs, reference, values = rng.normal(size=(3, TOKENS))
    scores = rng.normal(size=len(LENGTHS))
    found = ask("ppo_advantages", lengths=LENGTHS, log_probs=log_probs.tolist(),
                reference_log_probs=reference.tolist(), values=values.tolist(), scores=scores.tolist(),
                kl_estimator=estimator, kl_coef=0.07, gamma=gamma, **{"lambda": lam})
    ends = numpy.cumsum(LENGTHS)
    rewards = -0.07 * ESTIMATORS[estimator](log_probs - reference)
    rewards[ends - 1] += scores
    advantages, to_go = [], []
    for own_rewards, own_values in zip(numpy.split(rewards, ends[:-1]), numpy.split(values, ends[:-1])):
        steps = numpy.arange(len(own_rewards))
        errors = own_rewards + gamma * numpy.append(own_values[1:], 0) - own_values
        advantages += [(errors[t:] * (gamma * lam) ** steps[:len(steps) - t]).sum() for t in steps]
        to_go += [(own_rewards[t:] * gamma ** steps[:len(steps) - t]).sum() for t in steps]
    advantages, to_go = numpy.array(advantages), numpy.array(to_go)
    for name, expected in dict(rewards=rewards, advantages=whitened(advantages), returns=advantages + values,
                               rewards_to_go=whitened(to_go)).items():
        numpy.testing.assert_allclose(found[name], expected, rtol=1e-10, atol=1e-12, err_msg=name)
