// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What will not run, told before any rank starts.
//
// `skein plan`, the launcher of `skein train` and every rank check the same, in the same words.

#include <optional>
#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/file.h"
#include "skein/plan/families/architecture.h"
#include "skein/plan/rules.h"

namespace skein::plan {

// What training steps cannot do without: a model, data. Throws UserError, in the name of `command`.
void check_model_given(const config::RunConfig& config, const char* command);
// The same, and a place to save: for `skein train`.
void check_given(const config::RunConfig& config);

// What is wrong wherever the run starts, of what is given and before the data is read. Throws
// UserError for
//   a model folder without a config.json that we can compute, or without the weights to start from,
//   keys of fine-tuning that name nothing of the model, or an adapter of another one,
//   a chat template that is not there, is broken, or has tokens that the tokenizer lacks,
//   data files that are not there, or a tokenizer that has more ids than the model,
//   text without a tokenizer for weights that were made with one (byte_text.h),
//   a block_size beyond the positions that the model has learned.
void check_configuration(const config::Resolved& resolved);

// The same, and what this place adds. Throws UserError for
//   batch sizes that do not multiply,
//   a backend that this build or place does not have,
//   an output folder with files that no run of ours has written and this one would replace,
//   a checkpoint that is not there, must not be continued, or is not of this run.
// Returns the checkpoint that the run will continue, unless its ranks find a byte changed.
std::optional<fs::path> check_run(const config::Resolved& resolved, int ranks, const Place& place);

// All of it but the folder of nvme_path, which may be another machine's.
std::optional<fs::path> check_run_elsewhere(const config::Resolved& resolved, int ranks,
                                            const Place& place);
// Throws UserError where that folder is not there, or takes no files.
void check_nvme_folder(const config::Resolved& resolved);

// Of check_run(): keys that this version does not know to carry out, here or anywhere.
void check_supported(const config::Resolved& resolved);

// The rest, once the data is prepared (run_data.h): ids that the model does not have, data
// that leaves no step, too many steps, a checkpoint that was saved with other data. Throws
// UserError or IoError.
void check_prepared(const config::Resolved& resolved, int ranks);

// Of the longest row that a run trains on or evaluates. Throws UserError where the model has no
// positions for it; returns a warning where it was not made for so many, empty: none.
std::string check_longest_row(const config::Resolved& resolved, const Dimensions& model,
                              int64_t longest);

// For a plan, which makes no folders: throws IoError where making output_dir or, for text,
// data_cache_dir would fail.
void check_folders(const config::RunConfig& config);

// What a user should know before the run starts, though it will run.
std::vector<std::string> run_warnings(const config::Resolved& resolved, const Place& place);

}  // namespace skein::plan
