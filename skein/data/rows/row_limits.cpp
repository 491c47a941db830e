// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/amounts.h"
#include "skein/core/error.h"

namespace skein::data {

RowTally::RowTally(const RowLimits& limits, RowKind kind) : limits_(limits), kind_(kind) {
  if (limits.cutoff_len >= 2 || kind == RowKind::kPrompts) return;
  throw UserError(
      fmt::format("cutoff_len: {} leaves nothing to predict; a row needs at least 2 tokens",
                  limits.cutoff_len));
}

void RowTally::refuse_long(std::span<const RowSize> answers,
                           const std::function<std::string()>& place) const {
  if (kind_ == RowKind::kPrompts && answers[0].length > limits_.cutoff_len) {
    throw IoError(
        fmt::format("{}: the prompt has {} tokens, max_prompt_length is {}; give a larger "
                    "max_prompt_length, or long_prompts: drop or truncate_left",
                    place(), answers[0].length, limits_.cutoff_len));
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].length <= limits_.cutoff_len) continue;
    const char* whose =
        i == 0 ? "chosen answer and its prompt have" : "rejected answer and its prompt have";
    throw IoError(
        fmt::format("{}: the {} {} tokens, cutoff_len is {}; give a larger cutoff_len, or "
                    "excess_length_strategy: truncate or drop",
                    place(), kind_ == RowKind::kPairs ? whose : "row has", answers[i].length,
                    limits_.cutoff_len));
  }
}

void RowTally::add_sizes(std::span<const RowSize> answers, bool is_dropped) {
  ++counts_.rows;
  for (const auto& answer : answers) {
    counts_.tokens += answer.length;
    counts_.targets += answer.targets;
    const int64_t kept = is_dropped ? 0 : std::min(answer.length, limits_.cutoff_len);
    counts_.tokens_lost += answer.length - kept;
    counts_.targets_lost += answer.targets - (is_dropped ? 0 : answer.targets_within);
  }
}

bool RowTally::add(std::span<const RowSize> answers, const std::function<std::string()>& place,
                   const std::function<bool()>& are_equal) {
  if (limits_.excess_length == ExcessLength::kError) refuse_long(answers, place);
  const bool too_long = std::ranges::any_of(
      answers, [&](const RowSize& answer) { return answer.length > limits_.cutoff_len; });
  const bool is_dropped = too_long && limits_.excess_length == ExcessLength::kDrop;
  add_sizes(answers, is_dropped);
  if (too_long) ++counts_.too_long;
  if (is_dropped) return false;
  const bool wants_targets = kind_ != RowKind::kPrompts;
  if (wants_targets && std::ranges::find(answers, 0, &RowSize::targets_within) != answers.end()) {
    const bool had_targets = std::ranges::find(answers, 0, &RowSize::targets) == answers.end();
    auto& first = had_targets ? first_.prompt_too_long : first_.without_target;
    if (first.empty()) first = place();
    ++(had_targets ? counts_.prompt_too_long : counts_.without_target);
    return false;
  }
  if (kind_ == RowKind::kPairs && are_equal()) {
    if (limits_.equal_pairs == EqualPairs::kError) {
      throw IoError(fmt::format(
          "{}: the chosen and the rejected answer are equal{}; give equal_pairs: drop or "
          "keep",
          place(), too_long ? ", where cutoff_len ends them" : ""));
    }
    if (first_.equal.empty()) first_.equal = place();
    ++counts_.equal;
    if (limits_.equal_pairs == EqualPairs::kDrop) return false;
  }
  ++counts_.samples;
  return true;
}

void RowTally::require_samples(const std::string& first) const {
  if (counts_.samples > 0) return;
  if (kind_ == RowKind::kPrompts) {
    throw IoError(fmt::format(
        "all of {} are longer than max_prompt_length={}: give a larger one; "
        "the first is {}",
        counted(static_cast<uint64_t>(counts_.rows), "prompt"), limits_.cutoff_len, first));
  }
  const auto rows =
      counted(static_cast<uint64_t>(counts_.rows), kind_ == RowKind::kPairs ? "pair" : "row");
  if (counts_.prompt_too_long == counts_.rows) {
    throw IoError(
        fmt::format("cutoff_len={} leaves no token of any answer in {}: the prompts alone are as "
                    "long; give a larger cutoff_len; the first is {}",
                    limits_.cutoff_len, rows, first));
  }
  auto why = fmt::format(
      "{} without a target, {} longer than cutoff_len={}, {} whose prompt is as long as that",
      counts_.without_target, counts_.too_long, limits_.cutoff_len, counts_.prompt_too_long);
  if (counts_.equal > 0) {
    why +=
        fmt::format(", {} with two equal answers (equal_pairs=keep trains on them)", counts_.equal);
  }
  throw IoError(fmt::format("none of {} can be trained on: {}; the first is {}", rows, why, first));
}

std::string_view plural_of(RowKind kind) {
  if (kind == RowKind::kPrompts) return "prompts";
  return kind == RowKind::kPairs ? "pairs" : "rows";
}

}  // namespace skein::data
