// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One shard: the file with the rows of a block. docs/gradient_format.md has it byte for byte.
//
// A shard is read by whoever finds it. Whatever is not exactly what write_shard() writes is
// refused with an IoError that names the file; a shard of another collection with a ForeignShard.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/gradient_features/files/collection.h"
#include "skein/gradient_features/files/row_reader.h"
#include "skein/spill/direct_file.h"

namespace skein::gradient_features {

struct ForeignShard : UserError {
  using UserError::UserError;
};

// A collection as its shards know it.
struct KnownCollection {
  explicit KnownCollection(CollectionFacts the_facts)
      : facts(std::move(the_facts)), digest(facts_digest(facts)) {}

  CollectionFacts facts;
  std::string digest;
};

// "block-00000012.safetensors", and back.
std::string shard_name(int64_t block);
std::optional<int64_t> block_of_name(std::string_view name);

// What a shard says of itself, which its bytes have not been compared with.
struct ShardHeader {
  int64_t block = 0;
  int64_t num_rows = 0;
  std::vector<SkippedSample> skipped;
  std::string digest;
  uint64_t samples_begin = 0, rows_begin = 0;  // in the file
};

// `name` begins messages.
ShardHeader read_shard_header(const File& file, std::string_view name,
                              const KnownCollection& collection);

struct FoundShard {
  fs::path path;
  ShardHeader header;
};

// The header, compared with the name too.
FoundShard find_shard(const fs::path& path, const KnownCollection& collection);
// All of it, compared with the digest. Memory is that of a block, whatever the file says.
// Rows may lie in memory of a shelf.
ReadBlock read_shard(const File& file, std::string_view name, const KnownCollection& collection,
                     const std::shared_ptr<spill::PageShelf>& shelf = nullptr);
ReadBlock read_shard(const fs::path& path, const KnownCollection& collection,
                     const std::shared_ptr<spill::PageShelf>& shelf = nullptr);

// Where copies of a block differ, those that are whole; throws UserError when whole ones differ.
// None is whole: all of them. Copies that say the same are not read.
std::vector<FoundShard> settle_copies(std::vector<FoundShard> copies,
                                      const KnownCollection& collection);
// The first copy that is whole. Throws what the first one threw when none is.
ReadBlock read_copies(const std::vector<FoundShard>& copies, const KnownCollection& collection,
                      const std::shared_ptr<spill::PageShelf>& shelf = nullptr);

// As write_block() of collection.h.
void write_shard(const fs::path& folder, const KnownCollection& collection, const BlockRows& rows);
// Bytes of a shard of so many samples, at most.
uint64_t most_shard_bytes(const CollectionFacts& facts, int64_t num_samples);

// "17:no_target,19:not_finite".
std::string skipped_text(const std::vector<SkippedSample>& skipped);

}  // namespace skein::gradient_features
