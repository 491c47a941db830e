// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "skein/checkpoint/files/run_record.h"
#include "skein/config/saved_config.h"
#include "skein/core/error.h"

namespace skein::plan {
namespace {

// What a run replaces without asking: it must be its own.
constexpr const char* kReplacedFiles[] = {
    "trainer_log.jsonl", "trainer_state.json",           "training_loss.svg",
    "model.safetensors", "model.safetensors.index.json", "config.json"};

bool is_or_may_be_ours(const fs::path& file) {
  return !fs::exists(file) || config::is_saved_config(read_file(file));
}

}  // namespace

std::string config_name(const fs::path& output) {
  for (const char* name : {"config.yaml", "skein-config.yaml"}) {
    if (is_or_may_be_ours(output / name)) return name;
  }
  throw UserError(fmt::format(
      "{0}/config.yaml and {0}/skein-config.yaml were not written by skein, which would replace "
      "one of them with the configuration of this run: move one away, or give another output_dir",
      output.string()));
}

void check_foreign_files(const fs::path& output) {
  const auto saved = output / config_name(output);
  if (fs::exists(saved) || checkpoint::read_record(output)) return;  // a run's folder
  std::vector<std::string> foreign;
  for (const char* name : kReplacedFiles) {
    if (fs::exists(fs::symlink_status(output / name))) foreign.emplace_back(name);
  }
  if (foreign.empty()) return;
  throw UserError(fmt::format(
      "output_dir: {} holds {}, which no run of skein has written and this one would replace: give "
      "another output_dir, or move them away",
      output.string(), fmt::join(foreign, ", ")));
}

}  // namespace skein::plan
