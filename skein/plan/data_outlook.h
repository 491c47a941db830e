// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much data will a run train on? Files are looked at, nothing is prepared or written.

#include <cstdint>
#include <string>

#include "skein/config/run_config.h"

namespace skein::plan {

struct DataOutlook {
  size_t files = 0;  // 0: no training data is given
  uint64_t bytes = 0;
  int64_t tokens = 0;
  int64_t blocks = 0;           // that are trained on; of rows 0
  int64_t rows = 0;             // the same of rows
  int64_t packs = 0;            // where rows are packed, about
  int64_t longest = 0;          // tokens of a row; 0: unknown
  int64_t steps_per_epoch = 0;  // 0: unknown
  bool exact = false;           // else the number of tokens is extrapolated from a sample
};

// Throws UserError or IoError as the preparation of the data would, for what its files' beginnings
// show (data/preview.h): a file or tokenizer that is not there or broken, bad lines, ids that the
// model does not have, exact counts that leave no step.
DataOutlook look_at_data(const config::RunConfig& config, int64_t global_batch);

}  // namespace skein::plan
