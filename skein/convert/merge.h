// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// An adapter and its base become a model: `skein merge`.

#include <cstdint>
#include <string>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/file.h"
#include "skein/plan/model_folder.h"

namespace skein::convert {

struct MergeOptions {
  plan::ModelFolder model;  // an adapter and its base
  fs::path out;
  bool overwrite = false;
  uint64_t max_shard_bytes = checkpoint::kDefaultShardBytes;
};

struct MergeSummary {
  size_t num_adapted = 0;   // weights that LoRA has changed
  size_t num_replaced = 0;  // tensors that the adapter holds whole
  bool untied_head = false;
  uint64_t num_rows = 0;  // of the embedding; 0: no name is known for it
  size_t num_files = 0;
  uint64_t bytes = 0;
};

// Every weight is formed in fp32 and rounded once to the base's type. Where the adapter comes with
// a tokenizer, the ids in config.json and generation_config.json follow it, as in a model whose
// weights were all trained. Throws UserError, IoError.
MergeSummary merge_adapter(const MergeOptions& options);

}  // namespace skein::convert
