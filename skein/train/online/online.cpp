// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Read top to bottom: begin, then sample, judge and learn until done.

#include "skein/train/online/online.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/ops/device.h"
#include "skein/train/ending.h"
#include "skein/train/nan_guard.h"
#include "skein/train/online/experience.h"
#include "skein/train/online/held_out.h"
#include "skein/train/online/learn.h"
#include "skein/train/online/online_run.h"
#include "skein/train/step_trace.h"

namespace skein::train {
namespace {

// Between the parts of a step, which can be long. True: nothing of the step has been learned yet,
// and it is given up.
bool asked_to_stop(World& world) { return world.group.sum(int64_t{world.stop_requested()}) > 0; }

double tokens_of(std::span<const Sampled> samples) {
  double tokens = 0;
  for (const auto& sample : samples) tokens += static_cast<double>(sample.num_own());
  return tokens;
}

// Ranks that have sampled all of theirs wait for the others. Collective.
algorithms::NamedNumbers numbers_of_rollout(double seconds, double tokens, comm::Group& group) {
  std::vector<double> all(static_cast<size_t>(group.size()) + 1);
  all[static_cast<size_t>(group.rank())] = seconds;
  all.back() = tokens;
  all = group.sum(all);
  tokens = all.back();
  all.pop_back();
  const double longest = std::ranges::max(all);
  const double busy = std::accumulate(all.begin(), all.end(), 0.0);
  if (longest <= 0) return {};
  return {{"rollout/tokens_per_second", tokens / longest},
          {"rollout/idle_share", 1 - busy / (longest * static_cast<double>(all.size()))}};
}

// What the step learns from; nothing when it is given up. Collective.
std::optional<Experience> make_experience(OnlineRun& online, const data::StepBatches& data,
                                          int64_t step) {
  auto& run = online.run;
  auto& phases = run.metrics.phases();
  phases.enter(Phase::kRollout);
  const auto prompts = read_prompts(online.prompts, data.samples, *online.codec);
  const auto deal = online.deal_of(prompts.count());
  const auto began = std::chrono::steady_clock::now();
  const PolicySampler::Wish wish{
      .step = step, .generations = online.plan.generations, .log_probs = true, .what = "sampling"};
  auto samples = online.sampler.sample(prompts, deal.own(), wish);
  const auto seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (asked_to_stop(run.world)) return std::nullopt;
  const auto of_rollout = numbers_of_rollout(seconds, tokens_of(*samples), run.world.group);

  phases.enter(Phase::kReward);
  const auto verdict = online.judge_all(prompts, *samples, wish);
  if (!verdict || asked_to_stop(run.world)) return std::nullopt;
  const auto outcomes =
      share_outcomes(deal.num_completions(), prompts, *samples, *verdict, run.world.group);

  phases.enter(Phase::kForward);
  auto experience = online.maker.make(deal, {prompts, *samples, outcomes});
  auto& numbers = experience.numbers;
  std::ranges::move(numbers_of(outcomes, online.judge.names(), online.plan.generations),
                    std::inserter(numbers, numbers.begin()));
  numbers.insert(numbers.end(), of_rollout.begin(), of_rollout.end());
  online.completions.add(
      {step + 1, prompts, *samples, *verdict, online.judge.names(), experience.advantages},
      run.plan.logs_at(step + 1));
  return experience;
}

}  // namespace

Outcome run_online(const config::Resolved& resolved, const config::BatchPlan& batches,
                   World& world) {
  Session run(resolved, batches, world);
  const auto& plan = run.plan;
  if (has_ended(run)) return Outcome::kFinished;
  OnlineRun online(run);
  int64_t step = begin(online);
  if (has_ended(run, step)) return Outcome::kFinished;

  auto& phases = run.metrics.phases();
  Learner learner(online);
  bool stopping = !evaluate_held_out_first(online, step);
  auto early = reason_to_end(run);
  int64_t saved = run.beginning.checkpoint ? step : 0;
  StepTrace step_trace(run, step);
  while (step < plan.total_steps && !stopping && !early) {
    step_trace.before(step);
    phases.enter(Phase::kData);
    auto data = run.loader.batches(step);
    board::set_board_step(step, data.samples);
    const auto experience = make_experience(online, data, step);
    if (!experience) {
      stopping = true;
      break;
    }
    learner.learn(*experience, step++, data.samples);
    phases.enter(Phase::kOther);
    stopping = asked_to_stop(world);
    const bool saves = plan.saves_at(step);
    if (plan.logs_at(step)) learner.write(step, data.epoch);
    if (plan.evals_at(step) && !stopping) {
      stopping = !evaluate_held_out(online, step, data.epoch, saves);
      early = reason_to_end(run);
    }
    if (saves || stopping || (early && plan.save_every > 0)) {
      save_step(run, step, stopping);
      saved = step;
    }
    data.lengths = experience->lengths;  // what has been learned from, not the prompts alone
    step_trace.after(step, data);
  }

  step_trace.finish();
  if (stopping && saved < step) save_step(run, step, stopping);
  return conclude(run, step, stopping);
}

}  // namespace skein::train
