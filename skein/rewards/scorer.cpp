// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/scorer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"
#include "skein/rewards/program.h"

namespace skein::rewards {
namespace {

// Squares of larger ones, and with them deviations, would be infinite.
constexpr double kLargest = 1e100;

// Of a row that no reward could use, so that a misspelt column is seen.
std::string columns_of(const Completion& completion) {
  RowReader reader;
  std::vector<std::string> names;
  for (const auto& [name, value] : reader.columns(completion).items()) names.push_back(name);
  return names.empty() ? "its row has no columns"
                       : fmt::format("its row has the columns {}",
                                     shown(fmt::format("{}", fmt::join(names, ", "))));
}

}  // namespace

// The completions of one call that cannot be scored, by policy: the first ends the run, or they are
// left out with one warning.
class Scorer::Doubts {
 public:
  Doubts(Unscored policy, size_t count) : policy_(policy), doubtful_(count) {}
  Doubts(const Doubts&) = delete;
  ~Doubts() {
    if (num_ == 0) return;
    log_warning("{}; left out of learning: {} of {}", first_, counted(num_, "completion"),
                doubtful_.size());
  }

  void add(size_t index, const std::string& why) {
    if (policy_ == Unscored::kStop) throw UserError(why);
    if (doubtful_[index]) return;
    if (num_++ == 0) first_ = why;
    doubtful_[index] = true;
  }
  bool holds(size_t index) const { return doubtful_[index]; }

 private:
  Unscored policy_;
  std::vector<bool> doubtful_;
  size_t num_ = 0;
  std::string first_;
};

Scorer::Scorer(Options options) : options_(std::move(options)) {
  for (const auto& spec : options_.functions) rewards_.push_back(make_reward(spec));
  if (!options_.program.empty()) program_ = std::make_unique<Program>(options_);
  const size_t num = rewards_.size() + (program_ ? 1 : 0);
  if (num == 0) throw UserError("no reward is given: neither a function nor a program");
  if (!options_.weights.empty() && options_.weights.size() != num) {
    throw UserError(fmt::format("{} of rewards for {}{}: one for each, in their order",
                                counted(options_.weights.size(), "weight"),
                                counted(rewards_.size(), "function"),
                                program_ ? " and the program" : ""));
  }
  for (const double weight : options_.weights) {
    if (!std::isfinite(weight)) throw UserError("a weight of a reward is not finite");
  }
}

Scorer::~Scorer() = default;

const std::vector<std::string>& Scorer::names() {
  start();
  return names_;
}

const std::vector<double>& Scorer::weights() {
  start();
  return weights_;
}

void Scorer::start() {
  if (is_started_) return;
  auto weights = options_.weights;
  weights.resize(rewards_.size() + 1, 1);
  std::vector<std::string> names;
  for (const auto& reward : rewards_) names.push_back(reward->name());
  if (program_) {
    const auto& ready = program_->ready();
    names.insert(names.end(), ready.names.begin(), ready.names.end());
    const auto weight = weights.back();
    weights.pop_back();
    for (const double own : ready.weights) weights.push_back(weight * own);
  }
  weights.resize(names.size());
  std::set<std::string> taken;
  for (auto& name : names) {
    auto unique = name;
    for (int i = 2; !taken.insert(unique).second; ++i) unique = fmt::format("{}_{}", name, i);
    name = unique;
  }
  names_ = std::move(names);
  weights_ = std::move(weights);
  is_started_ = true;
}

std::vector<std::optional<double>> Scorer::scores_of(Reward& reward,
                                                     std::span<const Completion> completions,
                                                     Doubts& doubts) {
  try {
    auto scores = reward.score(completions);
    SKEIN_CHECK(scores.size() == completions.size(), "a score for each completion");
    return scores;
  } catch (const UserError&) {
    // A row that cannot be meant so: which ones?
  }
  std::vector<std::optional<double>> scores(completions.size());
  for (size_t i = 0; i < completions.size(); ++i) {
    try {
      scores[i] = reward.score(completions.subspan(i, 1)).front();
    } catch (const UserError& error) {
      doubts.add(i, error.what());
    }
  }
  return scores;
}

Scores Scorer::score(std::span<const Completion> completions) {
  start();
  const auto count = completions.size();
  Scores scores{.totals = std::vector<std::optional<double>>(count),
                .skipped = std::vector<bool>(count),
                .messages = std::vector<std::vector<Message>>(count)};
  if (count == 0) {
    scores.parts.resize(names_.size());
    return scores;
  }
  Doubts doubts(options_.unscored, count);
  for (const auto& reward : rewards_) {
    scores.parts.push_back(scores_of(*reward, completions, doubts));
  }
  scores.parts.resize(names_.size(), std::vector<std::optional<double>>(count));
  if (program_) ask_program(completions, scores, doubts);
  sum_up(completions, scores, doubts);
  for (size_t i = 0; i < count; ++i) scores.skipped[i] = doubts.holds(i);
  return scores;
}

void Scorer::ask_program(std::span<const Completion> completions, Scores& scores, Doubts& doubts) {
  auto outcomes = program_->ask(completions);
  for (size_t i = 0; i < completions.size(); ++i) {
    auto& [answer, failure, is_misplaced] = outcomes[i];
    if (!failure.empty()) {
      doubts.add(i, failure);
      continue;
    }
    for (size_t r = 0; r < answer.rewards.size(); ++r) {
      scores.parts[rewards_.size() + r][i] = answer.rewards[r];
    }
    scores.messages[i] = std::move(answer.messages);
  }
}

void Scorer::sum_up(std::span<const Completion> completions, Scores& scores, Doubts& doubts) const {
  for (size_t i = 0; i < completions.size(); ++i) {
    if (!scores.messages[i].empty()) {  // it goes on: what it is worth is not known yet
      for (auto& part : scores.parts) part[i].reset();
      continue;
    }
    std::optional<double> total;
    for (size_t r = 0; r < names_.size(); ++r) {
      const auto& part = scores.parts[r][i];
      if (!part) continue;
      if (!std::isfinite(*part)) {
        doubts.add(i, fmt::format("the reward '{}' gives {} to {}", names_[r], *part,
                                  place_of(completions[i])));
      }
      total = total.value_or(0) + weights_[r] * *part;
    }
    if (doubts.holds(i)) continue;
    if (!total && !options_.needs_opinion) continue;
    if (!total) {
      doubts.add(
          i, fmt::format("no reward ({}) has anything to say about {}; {}", fmt::join(names_, ", "),
                         place_of(completions[i]), columns_of(completions[i])));
    } else if (!(std::abs(*total) <= kLargest)) {
      doubts.add(i,
                 fmt::format("the rewards of {} add up to {}", place_of(completions[i]), *total));
    } else {
      scores.totals[i] = total;
    }
  }
}

}  // namespace skein::rewards
