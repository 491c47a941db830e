// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/experience.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "skein/algorithms/episodes.h"
#include "skein/algorithms/moments.h"
#include "skein/comm/share_numbers.h"
#include "skein/config/online_values.h"
#include "skein/plan/preferences.h"
#include "skein/train/online/documents.h"

namespace skein::train {
namespace {

using algorithms::Moments;
using config::AdvantageEstimator;
using tensor::Batch;
using Values = std::vector<double>;

// Of each completion: is its group left out, because there is nothing to learn from it?
std::vector<bool> filtered_of(const config::PolicyConfig& policy, const Values& totals,
                              size_t group) {
  std::vector<bool> filtered(totals.size());
  for (size_t i = 0; policy.filter_groups && i < totals.size(); i += group) {
    if (!algorithms::is_all_equal(std::span(totals).subspan(i, group))) continue;
    std::fill_n(filtered.begin() + static_cast<ptrdiff_t>(i), group, true);
  }
  return filtered;
}

// Of each completion: 0 if nothing is to be learned from it.
Values weights_of(const config::PolicyConfig& policy, const Outcomes& outcomes,
                  const std::vector<bool>& filtered) {
  Values weights(outcomes.totals.size(), 1);
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool is_cut = outcomes.finished[i] == 0 && policy.mask_truncated_completions;
    if (std::isnan(outcomes.totals[i]) || is_cut || filtered[i]) weights[i] = 0;
  }
  return weights;
}

// Of what is masked out no token counts, and it stays one of the completions; a group that is
// filtered out does not.
tensor::Counts counts_of(const Numbers& numbers, const Outcomes& outcomes, const Values& weights,
                         const std::vector<bool>& filtered) {
  tensor::Counts counts;
  for (auto i = static_cast<size_t>(numbers.begin); i < static_cast<size_t>(numbers.end); ++i) {
    if (weights[i] > 0) counts.targets += static_cast<int64_t>(outcomes.lengths[i]);
    if (!filtered[i]) ++counts.samples;
  }
  return counts;
}

// The part of a rank's completions that a micro-batch has.
std::span<const Sampled> within(std::span<const Sampled> samples, const Numbers& numbers) {
  const auto first = std::ranges::lower_bound(samples, numbers.begin, {}, &Sampled::number);
  return {first, static_cast<size_t>(numbers.count())};
}

void append(Values& values, const at::Tensor& more) {
  const auto host = more.to(at::kCPU, at::kDouble).contiguous();
  const auto* first = host.data_ptr<double>();
  values.insert(values.end(), first, first + host.numel());
}

// The next `count` of some numbers, on a device; undefined where there are none.
at::Tensor taken(const Values& values, size_t begin, int64_t count, const at::Tensor& like) {
  if (values.empty() && count > 0) return {};
  auto* first = const_cast<double*>(values.data()) + begin;  // NOLINT: only read
  return at::from_blob(first, {count}, at::kDouble).clone().to(like.device());
}

}  // namespace

// What the estimators are told.
struct ExperienceMaker::Step {
  std::span<const Sampled> samples;
  const Values& weights;                // of the step's completions
  const std::vector<int64_t>& lengths;  // of this rank's
  const Told& told;
  Values kl{};  // of this rank's tokens; empty: rewards know nothing of it

  // Of this rank's completions, from those of the step.
  Values own(const Values& values) const {
    Values some;
    for (const auto& sample : samples) some.push_back(values[static_cast<size_t>(sample.number)]);
    return some;
  }
};

ExperienceMaker::ExperienceMaker(Session& run, Critic* critic)
    : run_(run),
      critic_(critic),
      plan_(plan::rollout_plan(run.config, run.batches)),
      shares_(plan::shares_prompts(run.config, run.architecture)) {
  const auto& policy = run.config.policy;
  kl_ = {.coefficient = config::kl_coef_of(run.config),
         .target = policy.kl_target.value_or(0),
         .horizon = static_cast<double>(policy.kl_horizon)};
}

std::map<std::string, double> ExperienceMaker::state() const {
  const auto& seen = normaliser_.seen;
  return {{"kl_coefficient", kl_.coefficient},
          {"scores_count", seen.count},
          {"scores_mean", seen.mean},
          {"scores_squares", seen.squares}};
}

void ExperienceMaker::restore(const std::map<std::string, double>& state) {
  const auto value = [&](const char* name, double otherwise) {
    const auto found = state.find(name);
    return found == state.end() ? otherwise : found->second;
  };
  // Without a target it is what the configuration says.
  if (kl_.target > 0) kl_.coefficient = value("kl_coefficient", kl_.coefficient);
  normaliser_.seen = {value("scores_count", 0), value("scores_mean", 0),
                      value("scores_squares", 0)};
}

bool ExperienceMaker::has_kl_in_rewards() const {
  return plan::reference_of(run_.config) != plan::Reference::kNone &&
         config::kl_place_of(run_.config) == config::KlPlace::kReward;
}

// A step's only update compares the policy with itself: what it says there is what it said before.
bool ExperienceMaker::asks_policy() const {
  return plan_.updates_per_step > 1 || has_kl_in_rewards();
}

ExperienceMaker::Told ExperienceMaker::look(const std::vector<MiniBatch>& mini_batches) {
  const at::NoGradGuard no_grad;
  const double temperature = run_.config.rollout.temperature;
  const auto reference = plan::reference_of(run_.config);
  Told told;
  const auto ask = [&](const auto& say, Values& values) {
    for (const auto& mini_batch : mini_batches) {
      for (const auto& batch : mini_batch.batches) append(values, say(batch));
    }
  };
  tensor::StepKey key{.training = false};
  if (asks_policy()) {
    const auto hold = run_.sharded.hold_roots();
    ask(
        [&](const Batch& batch) {
          return algorithms::token_log_probs(*run_.model, batch, key, run_.sharded, temperature);
        },
        told.log_probs);
  }
  if (reference != plan::Reference::kNone) {
    const bool is_copy = reference == plan::Reference::kCopy;
    auto& model = is_copy ? *run_.reference->model : *run_.model;
    auto& sharded = is_copy ? *run_.reference->sharded : run_.sharded;
    key.adapters = is_copy;
    const auto hold = sharded.hold_roots();
    ask(
        [&](const Batch& batch) {
          return algorithms::token_log_probs(model, batch, key, sharded, temperature);
        },
        told.reference);
  }
  if (critic_ != nullptr) {
    const auto hold = critic_->sharded->hold_roots();
    ask(
        [&](const Batch& batch) {
          return algorithms::token_values(*critic_->model, batch, *critic_->sharded);
        },
        told.values);
  }
  return told;
}

Values ExperienceMaker::scores_of(const Outcomes& outcomes) {
  const auto& ppo = run_.config.ppo;
  std::vector<bool> ended;
  for (const double finished : outcomes.finished) ended.push_back(finished > 0);
  auto scores = outcomes.totals;
  if (ppo.ppo_score_norm) scores = normaliser_.normalised(scores);
  return algorithms::ruled_scores(
      scores, ended,
      {.missing_end_penalty = ppo.missing_eos_penalty,
       .clip = ppo.reward_clip > 0 ? std::optional(ppo.reward_clip) : std::nullopt});
}

namespace {

// Of all completions of a step, from what each rank knows of its own.
Values of_step(std::span<const Sampled> samples, const Values& own, size_t count,
               comm::Group& group) {
  Values all(count);
  for (size_t i = 0; i < samples.size(); ++i) all[static_cast<size_t>(samples[i].number)] = own[i];
  comm::share_numbers(all, group);
  return all;
}

// Of numbers of tokens, over all ranks.
Moments moments_of_step(std::span<const Sampled> samples, std::span<const double> values,
                        std::span<const int64_t> lengths, const Values& weights,
                        comm::Group& group) {
  Values own;
  for (const auto& sample : samples) own.push_back(weights[static_cast<size_t>(sample.number)]);
  const auto parts = algorithms::completion_moments(values, lengths, own);
  Values counts, means, squares;
  for (const auto& part : parts) {
    counts.push_back(part.count);
    means.push_back(part.mean);
    squares.push_back(part.squares);
  }
  counts = of_step(samples, counts, weights.size(), group);
  means = of_step(samples, means, weights.size(), group);
  squares = of_step(samples, squares, weights.size(), group);
  std::vector<Moments> all;
  for (size_t i = 0; i < counts.size(); ++i) all.push_back({counts[i], means[i], squares[i]});
  return algorithms::joined(all);
}

// The sum over each completion's tokens.
Values sums(std::span<const double> values, std::span<const int64_t> lengths) {
  Values all;
  size_t at = 0;
  for (const auto length : lengths) {
    const auto some = values.subspan(at, static_cast<size_t>(length));
    all.push_back(std::accumulate(some.begin(), some.end(), 0.0));
    at += some.size();
  }
  return all;
}

// A completion that nobody has scored is masked out, whatever its numbers are.
void clear_unknown(Values& values) {
  for (auto& value : values) {
    if (std::isnan(value)) value = 0;
  }
}

}  // namespace

algorithms::Gae ExperienceMaker::estimate(const Step& step, Values scores) {
  const auto& config = run_.config;
  auto& group = run_.world.group;
  const auto size = static_cast<size_t>(plan_.generations);
  const auto estimator = config::advantage_estimator_of(config);
  const algorithms::TokenPenalty penalty{step.kl, kl_.coefficient};
  const auto whiten = [&](Values& values, algorithms::Shift shift) {
    const auto moments = moments_of_step(step.samples, values, step.lengths, step.weights, group);
    algorithms::whiten(values, moments, shift);
  };
  const bool of_completions =
      estimator == AdvantageEstimator::kGroup || estimator == AdvantageEstimator::kLeaveOneOut;
  if (of_completions) {
    if (has_kl_in_rewards()) {
      const auto kl = of_step(step.samples, sums(step.kl, step.lengths), scores.size(), group);
      for (size_t i = 0; i < scores.size(); ++i) scores[i] -= penalty.coefficient * kl[i];
    }
    const auto advantages = estimator == AdvantageEstimator::kGroup
                                ? algorithms::group_advantages(
                                      scores, {.size = size, .scale = config.policy.scale_rewards})
                                : algorithms::leave_one_out_advantages(scores, size);
    return {algorithms::spread(step.own(advantages), step.lengths), {}};
  }
  if (estimator == AdvantageEstimator::kReinforcePlusPlusBaseline) {
    scores =
        algorithms::group_advantages(scores, {.size = size, .scale = config::ScaleRewards::kNone});
  }
  clear_unknown(scores);
  auto rewards = algorithms::token_rewards(step.own(scores), step.lengths, penalty);
  if (estimator != AdvantageEstimator::kGae) {
    auto advantages = algorithms::rewards_to_go(rewards, step.lengths, config.ppo.gamma);
    whiten(advantages, algorithms::Shift::kToZero);
    return {std::move(advantages), {}};
  }
  if (config.ppo.whiten_rewards) whiten(rewards, algorithms::Shift::kKeepMean);
  auto estimate = algorithms::gae(rewards, step.told.values, step.lengths,
                                  {.gamma = config.ppo.gamma, .lambda = config.ppo.lam});
  if (config.ppo.whiten_advantages) whiten(estimate.advantages, algorithms::Shift::kToZero);
  return estimate;
}

// How much of the returns the critic knew before it has learned from them.
void ExperienceMaker::add_explained(const Step& step, const Values& returns,
                                    algorithms::NamedNumbers& numbers) {
  Values errors;
  for (size_t i = 0; i < returns.size(); ++i) errors.push_back(returns[i] - step.told.values[i]);
  const auto moments = [&](const Values& values) {
    return moments_of_step(step.samples, values, step.lengths, step.weights, run_.world.group);
  };
  const auto share = algorithms::explained_variance(moments(errors), moments(returns));
  if (share) numbers.emplace_back("value/explained_variance", *share);
}

// Numbers of tokens, to where their tokens lie.
void ExperienceMaker::tell(std::vector<MiniBatch>& mini_batches, const algorithms::Gae& estimate,
                           const Told& told) {
  size_t at = 0;
  for (auto& mini_batch : mini_batches) {
    for (auto& batch : mini_batch.batches) {
      auto episodes = *batch.episodes;
      const int64_t count = episodes.places.numel();
      const auto some = [&](const Values& all) { return taken(all, at, count, batch.tokens); };
      episodes.advantages = some(estimate.advantages);
      episodes.returns = some(estimate.returns);
      episodes.old_log_probs = some(told.log_probs);
      episodes.reference_log_probs = some(told.reference);
      episodes.old_values = some(told.values);
      batch = tensor::with_episodes(batch, std::move(episodes));
      at += static_cast<size_t>(count);
    }
  }
}

std::vector<MiniBatch> ExperienceMaker::mini_batches(const Deal& deal, const Material& material,
                                                     const Values& weights,
                                                     const std::vector<bool>& filtered) const {
  std::vector<MiniBatch> all;
  for (int64_t mini = 0; mini < deal.num_mini_batches(); ++mini) {
    auto& mini_batch = all.emplace_back();
    mini_batch.counts = counts_of(deal.mini_batch(mini), material.outcomes, weights, filtered);
    for (int64_t micro = 0; micro < deal.num_micro_batches(); ++micro) {
      const auto some = within(material.samples, deal.micro_batch(mini, micro));
      mini_batch.batches.push_back(
          tensor::to_device(to_learn(material.prompts, some, weights, shares_), run_.world.device));
    }
  }
  return all;
}

Experience ExperienceMaker::make(const Deal& deal, const Material& material) {
  auto& group = run_.world.group;
  const auto& [prompts, samples, outcomes] = material;
  const auto filtered =
      filtered_of(run_.config.policy, outcomes.totals, static_cast<size_t>(plan_.generations));
  const auto weights = weights_of(run_.config.policy, outcomes, filtered);
  Experience experience{.mini_batches = mini_batches(deal, material, weights, filtered)};
  const auto told = look(experience.mini_batches);
  std::vector<int64_t> lengths;
  for (const auto& sample : samples) lengths.push_back(sample.num_own());
  Step step{samples, weights, lengths, told};
  double kl = 0;
  if (has_kl_in_rewards()) {
    step.kl = algorithms::kl_estimates(told.log_probs, told.reference,
                                       config::kl_estimator_of(run_.config));
    const auto of_completions = of_step(samples, sums(step.kl, lengths), weights.size(), group);
    kl = algorithms::moments_of(of_completions).mean;
    experience.numbers.emplace_back("objective/kl", kl);
    experience.numbers.emplace_back("objective/kl_coef", kl_.coefficient);
  }
  const auto estimate = this->estimate(step, scores_of(outcomes));
  if (critic_ != nullptr) add_explained(step, estimate.returns, experience.numbers);
  if (has_kl_in_rewards() && kl_.target > 0) kl_.update(kl, std::ssize(weights));
  tell(experience.mini_batches, estimate, told);
  experience.advantages = sums(estimate.advantages, lengths);
  for (size_t i = 0; i < lengths.size(); ++i) {
    experience.advantages[i] /= static_cast<double>(lengths[i]);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    experience.lengths.push_back(
        static_cast<int64_t>(outcomes.lengths[i] + outcomes.other_lengths[i]));
  }
  return experience;
}

}  // namespace skein::train
