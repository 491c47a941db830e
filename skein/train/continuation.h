// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// May this start go on where a checkpoint stopped?

#include <cstdint>
#include <string>

#include "skein/core/file.h"
#include "skein/plan/hf_config.h"

namespace skein::train {

// What must not change between starts of one run, because the data order depends on it.
struct DataIdentity {
  std::string data_digest;
  int64_t global_batch = 0;
  int64_t seed = 0;  // data_seed
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;
};

// Throws UserError naming what changed the model or the order of the data since, or that the
// checkpoint has no optimizer state. Reads its small files alone.
void check_continuation(const fs::path& checkpoint, const plan::HfConfig& model,
                        const DataIdentity& identity);

}  // namespace skein::train
