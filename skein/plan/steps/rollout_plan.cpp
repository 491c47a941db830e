// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/steps/rollout_plan.h"

#include <fmt/format.h>

#include <initializer_list>
#include <numeric>
#include <optional>
#include <string_view>

#include "skein/config/online_values.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"

namespace skein::plan {
namespace {

int64_t product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  for (const auto factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result)) {
      throw UserError("the answers of a step are more than any machine can count");
    }
  }
  return result;
}

// One of the keys that say how many mini-batches a step has.
struct MiniBatches {
  const char* key;
  int64_t value, unit;  // mini-batches = value / unit
  const char* unit_name;

  std::string shown() const { return fmt::format("{}={}", key, value); }
};

int64_t count_of(const MiniBatches& given) {
  if (given.value % given.unit == 0) return given.value / given.unit;
  throw UserError(
      fmt::format("{} is not a multiple of {}, {}, so that a step has no whole number of updates.\n"
                  "ways to close it: {}={}, or num_mini_batches in its place",
                  given.shown(), given.unit_name, given.unit, given.key,
                  (given.value / given.unit + 1) * given.unit));
}

int64_t mini_batches_of(const config::PolicyConfig& policy, const config::BatchPlan& batches) {
  std::optional<MiniBatches> first;
  const auto add = [&](const std::optional<int64_t>& value, MiniBatches given) {
    if (!value) return;
    given.value = *value;
    if (!first) {
      first = given;
      count_of(given);
    } else if (count_of(given) != count_of(*first)) {
      throw UserError(
          fmt::format("{} means {} updates from a step's answers, and {} means {}: "
                      "keep one of the two",
                      first->shown(), count_of(*first), given.shown(), count_of(given)));
    }
  };
  add(policy.num_mini_batches, {"num_mini_batches", 0, 1, ""});
  add(policy.steps_per_generation,
      {"steps_per_generation", 0, batches.accumulation, "gradient_accumulation_steps"});
  add(policy.generation_batch_size, {"generation_batch_size", 0, batches.global,
                                     "the global batch (per device x accumulation x ranks)"});
  return first ? count_of(*first) : 1;
}

[[noreturn]] void refuse_groups(const RolloutPlan& plan, const config::BatchPlan& batches) {
  const int64_t factor = plan.generations / std::gcd(plan.generations, batches.global);
  const int64_t mini_batches = (plan.mini_batches / factor + 1) * factor;
  const int64_t global = (batches.global / plan.generations + 1) * plan.generations;
  throw UserError(fmt::format(
      "groups do not divide: a step has {} answers ({} mini-batch{} of {} = {} per device x {} "
      "accumulation x {} ranks), which are no whole number of prompts with {} answers each "
      "(num_generations).\nways to close it: global_batch_size={} (or another "
      "per_device_train_batch_size, gradient_accumulation_steps), num_mini_batches={}, or "
      "num_generations={}",
      plan.completions, plan.mini_batches, plan.mini_batches == 1 ? "" : "es", batches.global,
      batches.per_device, batches.accumulation, batches.ranks, plan.generations, global,
      mini_batches, std::gcd(plan.generations, plan.completions)));
}

}  // namespace

std::string RolloutPlan::line() const {
  const auto count = [](int64_t number, std::string_view what) {
    return counted(static_cast<uint64_t>(number), what);
  };
  return fmt::format("a step: {} x {} = {}, {} ({} {} x {}), at most {} tokens",
                     count(prompts, "prompt"), count(generations, "generation"),
                     count(completions, "completion"), count(updates_per_step, "update"),
                     mini_batches, mini_batches == 1 ? "mini-batch" : "mini-batches",
                     count(iterations, "iteration"), shown_count(most_tokens));
}

RolloutPlan rollout_plan(const config::RunConfig& config, const config::BatchPlan& batches) {
  RolloutPlan plan{.generations = config::generations_of(config),
                   .mini_batches = mini_batches_of(config.policy, batches),
                   .iterations = config::iterations_of(config)};
  plan.completions = product({plan.mini_batches, batches.global});
  if (plan.completions % plan.generations != 0) refuse_groups(plan, batches);
  plan.prompts = plan.completions / plan.generations;
  plan.updates_per_step = product({plan.mini_batches, plan.iterations});
  plan.most_tokens = product({plan.completions, config.data.block_size});
  return plan;
}

int64_t prompts_per_step(const config::RunConfig& config, const config::BatchPlan& batches) {
  return rollout_plan(config, batches).prompts;
}

int64_t samples_per_step(const config::RunConfig& config, const config::BatchPlan& batches) {
  return config::is_online(config.stage) ? prompts_per_step(config, batches) : batches.global;
}

}  // namespace skein::plan
