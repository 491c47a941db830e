// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/steps/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "skein/core/error.h"
#include "skein/plan/rates/schedule.h"

namespace skein::plan {
namespace {

// Below 1: a share of all steps, as in Hugging Face's Trainer.
int64_t interval(double value, int64_t total_steps) {
  const double steps = value < 1 ? std::ceil(value * static_cast<double>(total_steps)) : value;
  return std::max<int64_t>(1, static_cast<int64_t>(steps));
}

// Numbers of steps are also computed with as doubles, which are exact up to here.
constexpr double kMostSteps = 0x1p53;

int64_t steps_of_epochs(double epochs, int64_t steps_per_epoch) {
  const double steps = std::ceil(epochs * static_cast<double>(steps_per_epoch));
  if (steps <= kMostSteps) return static_cast<int64_t>(steps);
  throw UserError(
      fmt::format("num_train_epochs={} of {} steps each are more steps than can be counted: give "
                  "fewer epochs, or max_steps",
                  epochs, steps_per_epoch));
}

RunPlan plan_steps(const config::RunConfig& config, int64_t steps_per_epoch, int64_t total_steps) {
  RunPlan plan{.total_steps = total_steps,
               .steps_per_epoch = steps_per_epoch,
               .log_first = config.log.logging_first_step,
               .epoch_ends = {}};
  plan.warmup_steps = warmup_steps(config.schedule, plan.total_steps);
  plan.log_every = interval(config.log.logging_steps, plan.total_steps);
  switch (config.eval.eval_strategy) {
    case config::EvalStrategy::kNo:
      break;
    case config::EvalStrategy::kSteps:
      plan.eval_every = config.eval.eval_steps > 0
                            ? interval(config.eval.eval_steps, plan.total_steps)
                            : plan.log_every;
      break;
    case config::EvalStrategy::kEpoch:
      plan.eval_every = steps_per_epoch;
      plan.evals_by_epoch = true;
      break;
  }
  switch (config.checkpoint.save_strategy) {
    case config::SaveStrategy::kNo:
      break;
    case config::SaveStrategy::kSteps:
      plan.save_every = interval(config.checkpoint.save_steps, plan.total_steps);
      break;
    case config::SaveStrategy::kEpoch:
      plan.save_every = steps_per_epoch;
      plan.saves_by_epoch = true;
      break;
  }
  return plan;
}

}  // namespace

RunPlan plan_run(const config::RunConfig& config, int64_t steps_per_epoch) {
  const auto& schedule = config.schedule;
  const int64_t total = schedule.max_steps > 0
                            ? schedule.max_steps
                            : steps_of_epochs(schedule.num_train_epochs, steps_per_epoch);
  return plan_steps(config, steps_per_epoch, total);
}

RunPlan plan_run(const config::RunConfig& config, const data::EpochSteps& epochs) {
  if (epochs.are_even()) return plan_run(config, epochs.steps(0));
  const auto& schedule = config.schedule;
  const int64_t total =
      schedule.max_steps > 0 ? schedule.max_steps : epochs.total(schedule.num_train_epochs);
  auto plan = plan_steps(config, epochs.steps(0), total);
  if (!plan.evals_by_epoch && !plan.saves_by_epoch) return plan;
  for (int64_t end = 0; end < total;) {
    end += epochs.steps(std::ssize(plan.epoch_ends));
    plan.epoch_ends.push_back(end);
  }
  return plan;
}

bool RunPlan::is_due(int64_t finished_steps, int64_t every, bool by_epoch) const {
  if (every == 0) return false;
  if (finished_steps == total_steps) return true;
  if (by_epoch && !epoch_ends.empty()) {
    return std::ranges::binary_search(epoch_ends, finished_steps);
  }
  return finished_steps % every == 0;
}

bool RunPlan::logs_at(int64_t finished_steps) const {
  return is_due(finished_steps, log_every, false) || (log_first && finished_steps == 1);
}

bool RunPlan::evals_at(int64_t finished_steps) const {
  return is_due(finished_steps, eval_every, evals_by_epoch);
}

bool RunPlan::saves_at(int64_t finished_steps) const {
  return is_due(finished_steps, save_every, saves_by_epoch);
}

}  // namespace skein::plan
