// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_folder.h"

#include <fmt/format.h>

#include "skein/checkpoint/catalog.h"
#include "skein/core/log.h"

namespace skein::train {
namespace {

void remove_old_run(const fs::path& output) {
  for (const auto& [step, path] : checkpoint::list_checkpoints(output)) {
    log_info("--fresh: removing {}", path.string());
    checkpoint::remove_folder(path);
  }
  std::error_code ignored;
  fs::remove(output / "trainer_log.jsonl", ignored);
  fs::remove(output / "latest", ignored);
}

}  // namespace

void prepare_folder(const fs::path& output, const config::Resolved& resolved, World& world) {
  if (world.is_first()) {
    make_directories(output / "logs");
    checkpoint::sweep_temporaries(output);
    if (resolved.config.checkpoint.fresh) remove_old_run(output);
    write_file_atomically(output / "config.yaml", config::to_yaml(resolved));
    add_log_file(output / "logs" / "training.log");
  }
  world.group.barrier();
  add_log_file(output / "logs" / fmt::format("rank-{}.log", world.group.rank()));
}

std::optional<fs::path> newest_checkpoint(const fs::path& output, World& world) {
  int64_t step = -1;
  if (world.is_first()) {
    if (const auto found = checkpoint::find_latest(output))
      step = static_cast<int64_t>(found->manifest.step);
  }
  step = world.group.sum(world.is_first() ? step : int64_t{0});
  if (step < 0) return std::nullopt;
  return output / checkpoint::checkpoint_name(step);
}

}  // namespace skein::train
