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

// What lies in a folder, by name. Throws SystemFailure.
std::vector<fs::path> sorted_entries(const fs::path& folder);

// OUTPUT, and all OUTPUT/rank_K that are there.
std::vector<fs::path> shard_folders(const fs::path& output);

struct Survey {
  std::map<int64_t, std::vector<FoundShard>> shards;  // by block: all copies
  // By block: of files whose header is not what was written, what is wrong with them.
  std::map<int64_t, std::vector<std::string>> damaged;
};

// Throws ForeignShard, UserError for a folder under a shard's name, and SystemFailure where a shard
// cannot be read at all.
Survey survey_shards(const std::vector<fs::path>& folders, const KnownCollection& collection);

// That all shards of a collection have, as their headers say: those of one copy of each block.
int64_t num_rows(const fs::path& output, const CollectionFacts& facts);

// Some blocks, of which there may be more than anybody would hold.
inline constexpr int64_t kMostNamedBlocks = 10;
struct NamedBlocks {
  int64_t count = 0;           // of all
  std::vector<int64_t> first;  // kMostNamedBlocks or more, where there are as many
};
inline NamedBlocks all_named(const std::vector<int64_t>& blocks) {
  return {static_cast<int64_t>(blocks.size()), blocks};
}

// "blocks 3, 7 (samples 768 to 1023, 1792 to 2047)": the first few of them.
std::string name_blocks(const NamedBlocks& blocks, const CollectionFacts& facts);

// Throws UserError for a folder where a file is to be written: no rename replaces one.
void refuse_folder(const fs::path& path);

}  // namespace skein::gradient_features
