// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/beginning.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "skein/checkpoint/files/manifest.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/plan/continuation.h"
#include "skein/plan/run_files.h"

namespace skein::train {
namespace {

using checkpoint::ListedCheckpoint;
using checkpoint::Problem;
using checkpoint::Relation;
using checkpoint::SurveyedCheckpoint;

checkpoint::Share share_of(const World& world) {
  return {.rank = world.output_rank(), .size = world.output_size()};
}

// The lowest rank that has something to say. It speaks for all, since most of what is wrong with a
// checkpoint is seen by every rank.
std::optional<int> first_to_say(bool has_something, World& world) {
  std::vector<int64_t> all(static_cast<size_t>(world.group.size()));
  all[static_cast<size_t>(world.group.rank())] = has_something ? 1 : 0;
  all = world.group.sum(all);
  const auto first = std::ranges::find(all, 1);
  if (first == all.end()) return std::nullopt;
  return static_cast<int>(first - all.begin());
}

// Throws on the first rank that has something to say; the others end with it.
template <typename Error>
void end_if(bool has_something, World& world, const auto& message) {
  const auto first = first_to_say(has_something, world);
  if (first == world.group.rank()) throw Error(message());
  if (first) world.group.barrier();
}

// What a disk does not give is neither whole nor damaged: nothing may be decided on it.
void end_if_unreadable(const fs::path& checkpoint, const std::vector<Problem>& problems,
                       World& world) {
  const auto unreadable = std::ranges::find_if(problems, &Problem::unreadable);
  end_if<IoError>(unreadable != problems.end(), world, [&] {
    return fmt::format(
        "{} cannot be read: {}. Nothing has been changed; start again when the disk answers",
        checkpoint.string(), unreadable->message());
  });
}

void require_whole(const fs::path& checkpoint, World& world) {
  const auto problems = checkpoint::verify(checkpoint, nullptr, share_of(world));
  end_if_unreadable(checkpoint, problems, world);
  end_if<UserError>(!problems.empty(), world, [&] {
    std::string text;
    for (const auto& problem : problems) text += "\n  " + problem.message();
    return fmt::format("resume_from_checkpoint: {} is not a whole checkpoint:{}",
                       checkpoint.string(), text);
  });
}

bool is_whole(const ListedCheckpoint& listed, World& world) {
  const auto problems = checkpoint::verify(listed, nullptr, share_of(world));
  end_if_unreadable(listed.path, problems, world);
  const auto first = first_to_say(!problems.empty(), world);
  if (first == world.group.rank()) checkpoint::warn_skipped(listed.path, problems);
  return !first;
}

// Over the ranks that lead a folder: one, or one per node.
std::pair<int64_t, int64_t> extent_over_leaders(int64_t step, World& world) {
  std::vector<int64_t> steps(static_cast<size_t>(world.group.size()));
  constexpr int64_t kOffset = 2;  // 0: that rank leads nothing
  if (world.leads_output()) steps[static_cast<size_t>(world.group.rank())] = step + kOffset;
  steps = world.group.sum(steps);
  std::erase(steps, 0);
  const auto [lowest, highest] = std::minmax_element(steps.begin(), steps.end());
  return {*lowest - kOffset, *highest - kOffset};
}

using Survey = std::vector<SurveyedCheckpoint>;

// For the ranks that lead a folder; the others know nothing of theirs.
Survey survey_of(const fs::path& output, const World& world) {
  if (!world.leads_output()) return {};
  return checkpoint::survey(output, checkpoint::read_record(output));
}

// One without an accepted manifest is looked at as well: the warning says what is wrong with it.
int64_t newest_candidate(const Survey& survey, StepRange range) {
  for (const auto& listed : checkpoint::candidates(survey)) {
    if (range.above < listed.step && listed.step <= range.up_to) return listed.step;
  }
  return -1;
}

std::optional<ListedCheckpoint> newest_of(const Survey& survey, const fs::path& output,
                                          World& world, StepRange range) {
  while (true) {
    const int64_t step = newest_candidate(survey, range);
    const auto [lowest, highest] = extent_over_leaders(step, world);
    if (lowest < 0) return std::nullopt;
    if (lowest == highest) {
      ListedCheckpoint listed{lowest, output / checkpoint::checkpoint_name(lowest)};
      if (is_whole(listed, world)) return listed;
      range.up_to = lowest - 1;
      continue;
    }
    if (step > lowest) {
      log_info("the newest checkpoint here is of step {}, but another node's of step {}", step,
               lowest);
    }
    range.up_to = lowest;
  }
}

void warn_of_strangers(const Survey& survey) {
  for (const auto& seen : survey) {
    if (seen.relation != Relation::kStranger) continue;
    log_warning(
        "skipping {}: it is another run's; to begin with it, give resume_from_checkpoint={}",
        seen.listed.path.string(), seen.listed.path.string());
  }
}

Beginning newest_or_refuse(const fs::path& output, World& world) {
  const auto survey = survey_of(output, world);
  warn_of_strangers(survey);
  if (const auto newest = newest_of(survey, output, world, {})) return {newest->path, ""};
  auto refusal = plan::nothing_to_continue(
      output, survey,
      fmt::format(
          "{}: the warnings above say why",
          world.own_output ? " on all nodes (one node's may be copied to the others)" : ""));
  end_if<IoError>(!refusal.empty(), world, [&] { return refusal; });
  return {};
}

// A start that named this folder before has begun there. None: nothing newer has come of it.
std::optional<ListedCheckpoint> newer_than_asked(const std::string& asked, const fs::path& output,
                                                 World& world) {
  int64_t step = -1;
  if (world.leads_output()) {
    if (const auto record = checkpoint::read_record(output)) {
      step = record->began_with(asked).value_or(-1);
    }
  }
  const auto [lowest, highest] = extent_over_leaders(step, world);
  if (lowest < 0) return std::nullopt;
  return newest_of(survey_of(output, world), output, world, {.above = highest});
}

Beginning begin_at(const config::CheckpointConfig& options, const fs::path& output, World& world) {
  const auto asked = checkpoint::asked_name(options.resume_from_checkpoint);
  if (!options.fresh) {
    if (const auto newer = newer_than_asked(asked, output, world)) {
      log_info("this run began with {} and has gone on since", options.resume_from_checkpoint);
      return {newer->path, asked};
    }
  }
  auto path = plan::named_checkpoint(options, output);
  require_whole(path, world);
  return {std::move(path), asked};
}

}  // namespace

std::optional<ListedCheckpoint> newest_checkpoint(const fs::path& output, World& world,
                                                  StepRange range) {
  return newest_of(survey_of(output, world), output, world, range);
}

Beginning decide_beginning(const config::CheckpointConfig& options, const fs::path& output,
                           World& world) {
  if (world.leads_output()) plan::check_foreign_files(output);
  const auto from = plan::start_from(options, output);
  if (from == plan::StartFrom::kNewest) return newest_or_refuse(output, world);
  if (from == plan::StartFrom::kNamed) return begin_at(options, output, world);
  return {};
}

}  // namespace skein::train
