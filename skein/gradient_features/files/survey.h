// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which shards lie in the folder of a collection? Their headers are read, no rows.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/shard.h"

namespace skein::gradient_features {

// OUTPUT, and all OUTPUT/rank_K that are there.
std::vector<fs::path> shard_folders(const fs::path& output);

struct Survey {
  std::map<int64_t, std::vector<FoundShard>> shards;  // by block: all copies
  // By block: of files whose header is not what was written, what is wrong with them.
  std::map<int64_t, std::vector<std::string>> damaged;
};

// Throws ForeignShard, and SystemFailure where a shard cannot be read at all.
Survey survey_shards(const std::vector<fs::path>& folders, const KnownCollection& collection);

// "blocks 3, 7 (samples 768 to 1023, 1792 to 2047)": the first few of them.
std::string name_blocks(const std::vector<int64_t>& blocks, const CollectionFacts& facts);

}  // namespace skein::gradient_features
