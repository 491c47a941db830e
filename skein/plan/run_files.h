// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which files does a run write into its output folder, and may it replace what is there?

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "skein/checkpoint/files/catalog.h"
#include "skein/config/run_config.h"
#include "skein/core/dtype.h"
#include "skein/core/file.h"
#include "skein/plan/families/shapes.h"
#include "skein/plan/trainer_state.h"

namespace skein::plan {

// What a run writes under fixed names, besides its model; --fresh removes them.
inline constexpr std::array<const char*, 7> kRunFiles = {"trainer_log.jsonl",
                                                         kStateFile,
                                                         "training_loss.svg",
                                                         "training_reward.svg",
                                                         "completions.jsonl",
                                                         "failures.json",
                                                         "latest"};
// Of these, those of stages whose data is made while training alone.
inline constexpr std::array<const char*, 2> kOnlineFiles = {"training_reward.svg",
                                                            "completions.jsonl"};

struct RunFilesQuestion {
  const config::RunConfig& config;
  const Shapes* shapes = nullptr;  // what is saved; null: the model is not known
  DType dtype = DType::kF32;       // of the weights
  bool saves = false;              // checkpoints
};
// What a run that ends well leaves in its folder, relative to it. STEP, K and … stand for what is
// not known before; a name that ends with a slash is a folder, of which nothing more is told.
std::vector<std::string> files_of_run(const RunFilesQuestion& question, const fs::path& output);

// The name under which the run's configuration is saved: a user's own config.yaml is never
// replaced. Throws UserError when a user has files under both names.
std::string config_name(const fs::path& output);

// Is the folder a run's? Older programs kept no record. A config.yaml says nothing: it may be the
// recipe of this start.
bool is_run_folder(const std::optional<checkpoint::RunRecord>& record,
                   const std::vector<checkpoint::SurveyedCheckpoint>& survey);

// Throws UserError when the folder is no run's and holds files that a run would replace.
void check_foreign_files(const fs::path& output);

}  // namespace skein::plan
