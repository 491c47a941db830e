// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/outcomes.h"

#include <algorithm>
#include <cmath>

#include "skein/algorithms/advantages.h"
#include "skein/algorithms/moments.h"
#include "skein/comm/share_numbers.h"

namespace skein::train {
namespace {

using algorithms::Moments;
using algorithms::NamedNumbers;

// Of those that are numbers.
Moments moments_of_known(std::span<const double> values) {
  Moments moments;
  for (const double value : values) {
    if (!std::isnan(value)) moments.add(value);
  }
  return moments;
}

void add_rewards(const Outcomes& outcomes, std::span<const std::string> names,
                 NamedNumbers& numbers) {
  for (size_t k = 0; k < names.size(); ++k) {
    const auto moments = moments_of_known(outcomes.rewards[k]);
    if (moments.count == 0) continue;
    numbers.emplace_back("rewards/" + names[k] + "/mean", moments.mean);
    numbers.emplace_back("rewards/" + names[k] + "/std", moments.deviation());
  }
}

// The mean over groups of the deviation inside them.
double deviation_in_groups(std::span<const double> totals, size_t size) {
  double sum = 0;
  for (size_t i = 0; i < totals.size(); i += size) {
    sum += moments_of_known(totals.subspan(i, size)).deviation();
  }
  return sum * static_cast<double>(size) / static_cast<double>(totals.size());
}

void add_lengths(const Outcomes& outcomes, NamedNumbers& numbers) {
  const auto& lengths = outcomes.lengths;
  std::vector<double> ended;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (outcomes.finished[i] > 0) ended.push_back(lengths[i]);
  }
  const auto all = static_cast<double>(lengths.size());
  numbers.emplace_back("completions/mean_length", algorithms::moments_of(lengths).mean);
  numbers.emplace_back("completions/min_length", std::ranges::min(lengths));
  numbers.emplace_back("completions/max_length", std::ranges::max(lengths));
  numbers.emplace_back("completions/clipped_ratio", 1 - static_cast<double>(ended.size()) / all);
  if (ended.empty()) return;
  numbers.emplace_back("completions/mean_terminated_length", algorithms::moments_of(ended).mean);
  numbers.emplace_back("completions/min_terminated_length", std::ranges::min(ended));
  numbers.emplace_back("completions/max_terminated_length", std::ranges::max(ended));
}

}  // namespace

Outcomes share_outcomes(int64_t count, const Prompts& prompts, std::span<const Sampled> samples,
                        const Verdict& verdict, comm::Group& group) {
  const auto all = static_cast<size_t>(count);
  Outcomes outcomes;
  const auto share = [&](const auto& value_of) {
    std::vector<double> numbers(all);
    for (size_t i = 0; i < samples.size(); ++i) {
      numbers[static_cast<size_t>(samples[i].number)] = value_of(i);
    }
    comm::share_numbers(numbers, group);
    return numbers;
  };
  outcomes.totals = share([&](size_t i) { return verdict.totals[i]; });
  for (const auto& reward : verdict.rewards) {
    outcomes.rewards.push_back(share([&](size_t i) { return reward[i]; }));
  }
  outcomes.lengths = share([&](size_t i) { return static_cast<double>(samples[i].num_own()); });
  outcomes.other_lengths = share([&](size_t i) {
    const auto& prompt = prompts.tokens[static_cast<size_t>(samples[i].prompt)];
    return static_cast<double>(std::ssize(prompt) + std::ssize(samples[i].tokens) -
                               samples[i].num_own());
  });
  outcomes.finished = share([&](size_t i) { return samples[i].finished ? 1.0 : 0.0; });
  return outcomes;
}

NamedNumbers numbers_of(const Outcomes& outcomes, std::span<const std::string> reward_names,
                        int64_t generations) {
  NamedNumbers numbers;
  const auto group = static_cast<size_t>(generations);
  const auto totals = moments_of_known(outcomes.totals);
  if (totals.count > 0) {
    numbers.emplace_back("reward", totals.mean);
    numbers.emplace_back("reward_std", generations > 1 ? deviation_in_groups(outcomes.totals, group)
                                                       : totals.deviation());
  }
  if (generations > 1) {
    numbers.emplace_back("frac_reward_zero_std",
                         algorithms::share_of_equal_groups(outcomes.totals, group));
  }
  add_rewards(outcomes, reward_names, numbers);
  add_lengths(outcomes, numbers);
  return numbers;
}

std::vector<std::string> names_of_numbers(std::span<const std::string> reward_names,
                                          int64_t generations) {
  const std::vector<double> one(static_cast<size_t>(generations), 1);
  const Outcomes outcomes{.totals = one,
                          .rewards = std::vector<std::vector<double>>(reward_names.size(), one),
                          .lengths = one,
                          .other_lengths = one,
                          .finished = one};
  std::vector<std::string> names;
  for (auto& [name, value] : numbers_of(outcomes, reward_names, generations)) {
    names.push_back(name);
  }
  return names;
}

}  // namespace skein::train
