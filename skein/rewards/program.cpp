// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"

namespace skein::rewards {
namespace {

Time deadline_in(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Program::Program(const Options& options) : options_(options) {}

std::string Program::told(const std::string& what) const {
  return fmt::format("reward program '{}': {}",
                     shown(fmt::format("{}", fmt::join(options_.program, " "))), what);
}

std::string Program::told(const Completion& completion, const std::string& what) const {
  return told(fmt::format("{}: {}", place_of(completion), what));
}

void Program::drop(const std::string& why) {
  last_trouble_ = why;
  child_.reset();
}

const Ready& Program::ready() {
  if (child_) return *ready_;
  if (num_starts_ > options_.restarts) {
    throw UserError(told(fmt::format("it {}; it is not started again after {} restarts",
                                     last_trouble_, options_.restarts)));
  }
  ++num_starts_;
  child_.emplace(options_.program, options_.stop_requested);
  std::vector<std::string> lines;
  const auto trouble = child_->exchange({}, 1, deadline_in(options_.start_timeout_seconds), lines);
  if (trouble) {
    child_.reset();
    throw UserError(told(fmt::format(
        "it {} before it was ready ({} s are allowed), which it says with {{\"protocol\": {}}}",
        trouble->what, options_.start_timeout_seconds, kProtocol)));
  }
  Ready said;
  try {
    said = read_ready(lines.front());
  } catch (const BadLine& bad) {
    child_.reset();
    throw UserError(told(fmt::format("it began with '{}': {}", shown(lines.front()), bad.what())));
  }
  if (ready_ && said.names != ready_->names) {
    child_.reset();
    throw UserError(told(fmt::format("its rewards are {} now, and were {}",
                                     fmt::join(said.names, ", "), fmt::join(ready_->names, ", "))));
  }
  ready_ = std::move(said);
  return *ready_;
}

std::string Program::requests(std::span<const Completion> completions) {
  std::string text;
  for (size_t i = 0; i < completions.size(); ++i) {
    const LinePlace place{
        .id = next_id_++, .batch = next_batch_, .index = i, .count = completions.size()};
    text += request_line(completions[i], rows_.columns(completions[i]), place, options_.max_turns);
  }
  ++next_batch_;
  return text;
}

std::optional<ChildTrouble> Program::exchange(const std::string& text, size_t count,
                                              std::vector<std::string>& lines) try {
  while (true) {
    ready();
    lines.clear();
    if (!child_->unasked()) {
      const auto trouble =
          child_->exchange(text, count, deadline_in(options_.timeout_seconds), lines);
      if (trouble && trouble->kind == ChildTrouble::Kind::kEnded &&
          num_starts_ <= options_.restarts) {
        log_warning("{}; it is started again and asked for the same {} completions",
                    told("it " + trouble->what), count);
        drop(trouble->what);
        continue;
      }
      if (trouble) return trouble;
    }
    const auto unasked = child_->unasked();
    if (!unasked) {
      num_starts_ = 1;  // all that was asked is answered: what comes now is another trouble
      return std::nullopt;
    }
    return ChildTrouble{ChildTrouble::Kind::kTooLong,
                        fmt::format("has said more than it was asked for: '{}'", shown(*unasked))};
  }
} catch (...) {
  child_.reset();  // it is in the middle of something
  throw;
}

Program::Outcome Program::read(const Completion& completion, const std::string& line,
                               uint64_t id) const try {
  const bool may_go_on = completion.turn + 1 < options_.max_turns;
  return {.answer = read_answer(
              line, {.id = id, .num_rewards = ready_->names.size(), .may_go_on = may_go_on})};
} catch (const BadLine& bad) {
  return {.failure = told(completion, fmt::format("it answered '{}': {}", shown(line), bad.what())),
          .is_misplaced = dynamic_cast<const MisplacedLine*>(&bad) != nullptr};
}

std::vector<Program::Outcome> Program::ask(std::span<const Completion> completions) {
  const auto first_id = next_id_;
  const auto text = requests(completions);
  std::vector<std::string> lines;
  const auto trouble = exchange(text, completions.size(), lines);
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < completions.size(); ++i) {
    if (i < lines.size()) {
      outcomes.push_back(read(completions[i], lines[i], first_id + i));
    } else {
      outcomes.push_back(
          {.failure = told(
               completions[i],
               fmt::format("it {}; {} of {} answers had come ({} s are allowed)", trouble->what,
                           lines.size(), completions.size(), options_.timeout_seconds))});
    }
  }
  const auto has_failed = [](const Outcome& outcome) { return !outcome.failure.empty(); };
  if (trouble && std::ranges::none_of(outcomes, has_failed)) {
    outcomes.back().failure = told(completions.back(), "it " + trouble->what);
  }
  if (trouble) {
    drop(trouble->what);
  } else if (std::ranges::any_of(outcomes, &Outcome::is_misplaced)) {
    drop("has said more than it was asked for");
  }
  return outcomes;
}

}  // namespace skein::rewards
