// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a run trains on and evaluates, whatever its stage: blocks of text (pt), or rows. The
// launcher, `skein plan`, `skein data` and the ranks ask the same.

#include <cstdint>
#include <optional>
#include <string>

#include "skein/config/load.h"
#include "skein/config/run_config.h"
#include "skein/data/rows/open_encoder.h"
#include "skein/data/rows/run_rows.h"
#include "skein/data/run_samples.h"
#include "skein/data/source_files.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {

bool trains_on_rows(const config::RunConfig& config);
// block_size as the user spells it (cutoff_len, max_length, …); of rows cutoff_len unless typed, of
// prompts max_prompt_length.
std::string length_key(const config::Resolved& resolved);

// Of the model's vocabulary; absent: no model is given.
std::optional<int64_t> vocabulary_of(const config::RunConfig& config);

// The files of a split.
data::Sources sources_of(const config::RunConfig& config, data::Split split);

// How a run's rows become tokens, those of its stage.
data::RowTokens open_tokens(const config::RunConfig& config);

// For rows. `vocabulary`: of the model.
data::RunRowsOptions rows_options(const config::RunConfig& config, const data::RowTokens& tokens,
                                  int64_t vocabulary);

// Encodes what is not prepared yet; of rows, looks through the labels and logs what it found.
// Returns what tells the data from other data. Throws UserError or IoError for what cannot be
// trained on.
std::string prepare_data(const config::RunConfig& config);

// For a loader; does not prepare again what prepare_data() has just prepared.
data::RunSamples open_samples(const config::RunConfig& config, const HfConfig& model);

// The same of the evaluation data alone, which stand for the training data too.
data::RunSamples open_eval_samples(const config::RunConfig& config, const HfConfig& model);

}  // namespace skein::plan
