// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/held_out.h"

#include <chrono>
#include <optional>

#include "skein/train/due_evaluation.h"
#include "skein/train/evaluate.h"

namespace skein::train {
namespace {

// Draws of no step of the training.
constexpr int64_t kNoStep = -1;

// Nothing when the ranks are asked to stop.
std::optional<Evaluation> evaluate(OnlineRun& online) {
  auto& run = online.run;
  const auto begin = std::chrono::steady_clock::now();
  run.metrics.phases().enter(Phase::kEvaluate);
  const auto& held_out = *run.samples.eval;
  const auto& source = dynamic_cast<const data::PromptSource&>(*held_out.source);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < held_out.set.count(); ++i) numbers.push_back(held_out.set.sample(i));
  const auto prompts = read_prompts(source, numbers, *online.codec);
  const auto& group = run.world.group;
  // One mini-batch with all prompts, dealt to the ranks in equal runs.
  const Deal deal({.completions = prompts.count(),
                   .per_device = (prompts.count() + group.size() - 1) / group.size(),
                   .rank = group.rank(),
                   .size = group.size()});
  const PolicySampler::Wish wish{.step = kNoStep, .what = "evaluating"};
  auto samples = online.sampler.sample(prompts, deal.own(), wish);
  if (run.world.group.sum(int64_t{run.world.stop_requested()}) > 0) return std::nullopt;
  const auto verdict = online.judge_all(prompts, *samples, wish);
  if (!verdict) return std::nullopt;
  const auto outcomes =
      share_outcomes(deal.num_completions(), prompts, *samples, *verdict, run.world.group);
  Evaluation evaluation{.num_samples = prompts.count(),
                        .metrics = numbers_of(outcomes, online.judge.names(), 1)};
  for (const auto length : outcomes.lengths) {
    evaluation.num_targets += static_cast<int64_t>(length);
  }
  evaluation.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return evaluation;
}

std::optional<double> evaluate_and_log(OnlineRun& online, int64_t step, double epoch) {
  const auto evaluation = evaluate(online);
  if (!evaluation) return std::nullopt;
  online.run.metrics.write(step, epoch, *evaluation);
  return metric_of(*evaluation, online.run.config.eval.metric_for_best_model);
}

}  // namespace

bool evaluate_held_out(OnlineRun& online, int64_t step, double epoch, bool saves) {
  const auto value = evaluate_and_log(online, step, epoch);
  if (!value) return false;
  if (saves) note_evaluation(online.run, step, *value);
  return true;
}

bool evaluate_held_out_first(OnlineRun& online, int64_t step) {
  auto& run = online.run;
  if (step == 0) {
    return !run.config.eval.eval_on_start || evaluate_and_log(online, 0, 0).has_value();
  }
  if (!owes_evaluation(run, step)) return true;
  const auto value = evaluate_and_log(online, step, run.loader.epoch_steps().epochs_of(step));
  if (!value) return false;
  if (run.plan.saves_at(step)) note_saved_evaluation(run, step, *value);
  return true;
}

}  // namespace skein::train
