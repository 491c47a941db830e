// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What will not run, told before any rank starts.
//
// `skein plan`, the launcher of `skein train` and every rank check the same, in the same words.

#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/plan/rules.h"

namespace skein::plan {

// What `skein train` cannot do without: a model, data, a place to save. Throws UserError.
void check_given(const config::RunConfig& config);

// Of what is given. Throws UserError for
//   a model folder without a config.json that we can compute, or without the weights to start from,
//   data files that are not there,
//   a block_size beyond the positions that the model has learned.
void check_run(const config::RunConfig& config);

// What a user should know before the run starts, though it will run.
std::vector<std::string> run_warnings(const config::RunConfig& config, const Place& place);

}  // namespace skein::plan
