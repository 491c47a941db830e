// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "skein/checkpoint/catalog.h"
#include "skein/checkpoint/manifest.h"
#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::train {
namespace {

void remove_old_run(const fs::path& output) {
  for (const auto& [step, path] : checkpoint::list_checkpoints(output)) {
    log_info("--fresh: removing {}", path.string());
    checkpoint::remove_folder(path);
  }
  std::error_code ignored;
  for (const char* name : {"trainer_log.jsonl", "trainer_state.json", "training_loss.svg",
                           "failures.json", "latest"}) {
    fs::remove(output / name, ignored);
  }
  fs::remove_all(output / "runs", ignored);
  fs::remove_all(output / "wandb", ignored);
}

// `latest` is a link; other guides' spelling …/checkpoints/latest means the one beside the
// checkpoints.
fs::path named_checkpoint(const fs::path& named) {
  fs::path path = named;
  if (!fs::exists(path) && path.filename() == "latest" &&
      path.parent_path().filename() == "checkpoints") {
    path = path.parent_path().parent_path() / "latest";
  }
  if (!fs::exists(path)) {
    throw UserError(fmt::format("resume_from_checkpoint: there is no {}", named.string()));
  }
  return fs::canonical(path);
}

checkpoint::Share share_of(const World& world) {
  return {.rank = world.output_rank(), .size = world.output_size()};
}

// The lowest rank that has found problems; none: the checkpoint is whole. It speaks for all, since
// most of what is wrong with a checkpoint is seen by every rank.
std::optional<int> first_with_problems(const std::vector<checkpoint::Problem>& problems,
                                       World& world) {
  std::vector<int64_t> found(static_cast<size_t>(world.group.size()));
  found[static_cast<size_t>(world.group.rank())] = static_cast<int64_t>(problems.size());
  found = world.group.sum(found);
  const auto first = std::ranges::find_if(found, [](int64_t count) { return count > 0; });
  if (first == found.end()) return std::nullopt;
  return static_cast<int>(first - found.begin());
}

void require_whole(const fs::path& checkpoint, World& world) {
  const auto problems = checkpoint::verify(checkpoint, nullptr, share_of(world));
  if (first_with_problems(problems, world) == world.group.rank()) {
    std::string text;
    for (const auto& problem : problems) text += "\n  " + problem.message();
    throw UserError(fmt::format("resume_from_checkpoint: {} is not a whole checkpoint:{}",
                                checkpoint.string(), text));
  }
  world.group.barrier();  // the others end with the rank that has spoken
}

bool is_whole(const checkpoint::ListedCheckpoint& listed, World& world) {
  const auto problems = checkpoint::verify(listed, nullptr, share_of(world));
  const auto first = first_with_problems(problems, world);
  if (first == world.group.rank()) checkpoint::warn_skipped(listed.path, problems);
  return !first;
}

int64_t newest_step(const fs::path& output, int64_t at_most) {
  for (const auto& listed : checkpoint::list_checkpoints(output)) {
    if (listed.step <= at_most) return listed.step;
  }
  return -1;
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

}  // namespace

void open_folder(const fs::path& output, World& world) {
  if (world.leads_output()) {
    make_directories(output / "logs");
    checkpoint::sweep_temporaries(output);
    add_log_file(output / "logs" / "training.log");
  }
  world.group.barrier();
  add_log_file(output / "logs" / fmt::format("rank-{}.log", world.group.rank()));
}

void claim_folder(const fs::path& output, const config::Resolved& resolved, World& world) {
  world.group.barrier();  // a rank that could not load its part must be able to refuse
  if (world.leads_output()) {
    if (resolved.config.checkpoint.fresh) remove_old_run(output);
    write_file_atomically(output / "config.yaml", config::to_yaml(resolved));
  }
  world.group.barrier();
}

std::optional<fs::path> newest_checkpoint(const fs::path& output, World& world, int64_t at_most) {
  while (true) {
    const int64_t step = world.leads_output() ? newest_step(output, at_most) : -1;
    const auto [lowest, highest] = extent_over_leaders(step, world);
    if (lowest < 0) return std::nullopt;
    if (lowest == highest) {
      auto path = output / checkpoint::checkpoint_name(lowest);
      if (is_whole({lowest, path}, world)) return path;
      at_most = lowest - 1;
      continue;
    }
    if (step > lowest) {
      log_info("the newest checkpoint here is of step {}, but another node's of step {}", step,
               lowest);
    }
    at_most = lowest;
  }
}

std::optional<fs::path> checkpoint_to_continue(const config::CheckpointConfig& options,
                                               const fs::path& output, World& world) {
  const auto& wish = options.resume_from_checkpoint;
  if (wish == "auto") return options.fresh ? std::nullopt : newest_checkpoint(output, world);
  if (wish == "false") {
    if (options.fresh || checkpoint::list_checkpoints(output).empty()) return std::nullopt;
    throw UserError(fmt::format(
        "resume_from_checkpoint=false, but {} holds checkpoints of a started run: give another "
        "output_dir, or --fresh to remove them",
        output.string()));
  }
  auto path = named_checkpoint(wish);
  if (options.fresh && path.parent_path() == fs::canonical(output)) {
    throw UserError(
        fmt::format("--fresh would remove {}, from which resume_from_checkpoint would go on: give "
                    "another output_dir, or leave one of the two out",
                    path.string()));
  }
  require_whole(path, world);
  return path;
}

bool has_final_model(const fs::path& output, int64_t steps, World& world) {
  const auto is_there = [&] {
    const auto state = output / "trainer_state.json";
    if (!fs::exists(output / "config.json") || !fs::exists(state)) return false;
    const auto saved = nlohmann::json::parse(read_file(state), nullptr, /*allow_exceptions=*/false);
    return saved.is_object() && saved.value("global_step", int64_t{-1}) == steps;
  };
  return world.group.sum(int64_t{world.leads_output() && !is_there()}) == 0;
}

}  // namespace skein::train
