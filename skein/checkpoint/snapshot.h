// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which of a rank's tensors does a save write, and where do they go?

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "skein/checkpoint/file_set.h"
#include "skein/checkpoint/files/writer.h"
#include "skein/checkpoint/staging.h"

namespace skein::checkpoint {

// What a save stores.
struct Contents {
  std::vector<FileSet> sets;
  // Whole files by name (config.json, …); only rank 0's are written.
  std::map<std::string, std::string> texts;
};

// What a save writes, planned: the slices as they lie in memory, converted where the file has
// another type, and where they go.
struct Snapshot {
  Job job;  // without pieces
  std::vector<Source> sources;
};
Snapshot plan_snapshot(const Contents& contents, uint64_t max_shard_bytes);

}  // namespace skein::checkpoint
