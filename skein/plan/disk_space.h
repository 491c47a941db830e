// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much disk does a checkpoint need, and is it there?

#include <cstdint>
#include <optional>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/plan/families/shapes.h"
#include "skein/plan/rules.h"

namespace skein::plan {

// The tensor files of a checkpoint; those of the model are the final model's too.
struct CheckpointFiles {
  checkpoint::Layout model, optimizer;
};
CheckpointFiles checkpoint_files(const Shapes& shapes, const config::RunConfig& config,
                                 DType dtype);

struct CheckpointBytes {
  uint64_t model = 0;
  uint64_t optimizer = 0;
  uint64_t critic = 0;  // its weights and optimizer, in a folder of its own; not of a final model
  uint64_t sum() const { return model + optimizer + critic; }
};
// Of one checkpoint, to the byte but for its small text files.
CheckpointBytes checkpoint_bytes(const Shapes& shapes, const config::RunConfig& config,
                                 DType dtype);

// What the file system of `folder`, which need not exist, has left for this user.
std::optional<uint64_t> free_space(const fs::path& folder);

// Before any rank starts: throws IoError when the first thing that the run saves would not fit.
// What the start itself removes first (with --fresh the old run, leftovers of an interrupted save)
// counts as free. A run that is complete needs nothing.
void check_disk(const config::RunConfig& config, const Place& place);

}  // namespace skein::plan
