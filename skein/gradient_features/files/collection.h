// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The folder of a collection: which blocks of samples have been done, and where do their rows lie?
//
//   OUTPUT/collection.json                     its facts
//   OUTPUT/block-00000012.safetensors          a shard: the rows of one block
//   OUTPUT/rank_1/block-00000013.safetensors   the same, of a start with several ranks
//
// Block b is the samples [b * samples_per_block, (b + 1) * samples_per_block), the last may be
// short. A shard comes into being whole or not at all. All shards count, whichever start wrote
// them: a start may have another number of ranks than the one before. The format is
// docs/gradient_format.md. Functions may be called by several processes at a time, write_block()
// for different blocks.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/collection_facts.h"

namespace skein::gradient_features {

inline constexpr const char* kCollectionFile = "collection.json";

// Why a sample has no row. Files hold the words "no_target" and "not_finite".
enum class SkipReason { kNoTarget, kNotFinite };

struct SkippedSample {
  int64_t sample = 0;
  SkipReason reason = SkipReason::kNoTarget;
  bool operator==(const SkippedSample&) const = default;
};

// OUTPUT with one rank, OUTPUT/rank_K with several.
fs::path folder_of_rank(const fs::path& output, int64_t rank, int64_t size);

// Begins a collection, or goes on with one. One process calls it before others write. Makes the
// folder and its collection.json; removes what interrupted writes of shards have left, nothing
// else. Throws UserError when the folder holds rows with other facts (what differs, what to type),
// or shards without any. Facts without a row are replaced.
void open_collection(const fs::path& output, const CollectionFacts& facts);

// Throws UserError when the folder holds no collection, IoError when its file is damaged.
CollectionFacts read_collection(const fs::path& output);

// The samples of a block: [first, last).
struct SampleRange {
  int64_t first = 0;
  int64_t last = 0;
};
SampleRange samples_of_block(const CollectionFacts& facts, int64_t block);

// Blocks that have no whole shard, rising. Reads every byte of the collection: one process asks and
// tells the others. Damaged shards are warned of and their blocks missing; writing such a block
// again into the same folder replaces its shard. Throws UserError for shards of another collection,
// and for whole shards of one block that differ.
std::vector<int64_t> missing_blocks(const fs::path& output, const CollectionFacts& facts);

struct BlockRows {
  int64_t block = 0;
  std::span<const int64_t> samples;        // rising
  std::span<const float> rows;             // samples.size() x facts.dimension(), row-major, finite
  std::span<const SkippedSample> skipped;  // rising; with `samples`, all of the block
};

// Durable when it returns. Rows are rounded to facts.output_dtype, to nearest and ties to even;
// throws UserError, naming the sample, for a value that float16 cannot hold. Makes `folder` if need
// be: that of folder_of_rank().
void write_block(const fs::path& folder, const CollectionFacts& facts, const BlockRows& rows);

// What so many blocks take on the disk, at most.
uint64_t bytes_to_come(const CollectionFacts& facts, int64_t num_blocks);

// Throws DiskFull, with what is needed and free, when the disk of `folder` (which need not exist)
// has less room than `bytes`. `what` as in "the rows to come".
void check_room(const fs::path& folder, uint64_t bytes, const std::string& what);

}  // namespace skein::gradient_features
