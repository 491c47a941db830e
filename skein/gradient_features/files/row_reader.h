// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The rows of a collection in the order of samples, whichever ranks and starts wrote them.
//
//   RowReader reader(output);
//   while (auto block = reader.next()) use(block->samples, block->rows);
//
// Shards are read ahead by threads, from the first next() on, and compared with their digests;
// memory is that of a few blocks, however many there are. Not thread-safe.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/gradient_features/files/collection.h"
#include "skein/spill/direct_file.h"

namespace skein::gradient_features {

struct ReadBlock {
  ReadBlock() = default;
  ReadBlock(ReadBlock&&) = default;  // `rows` stay where they are
  ReadBlock& operator=(ReadBlock&&) = default;

  int64_t block = 0;
  SampleRange range;             // all samples of the block
  std::vector<int64_t> samples;  // those that have a row, rising
  std::span<const float> rows;   // samples.size() x facts().dimension(), row-major
  std::vector<SkippedSample> skipped;
  // What `rows` lie in.
  spill::PagedMemory bytes;
  std::vector<float> floats;  // of what is stored with 16 bits
};

// Shards that are not what was written.
struct DamagedRows : IoError {
  DamagedRows(const std::string& message, std::vector<int64_t> the_blocks)
      : IoError(message), blocks(std::move(the_blocks)) {}
  std::vector<int64_t> blocks;
};

class RowReader {
 public:
  // The collection of a folder. Throws UserError for shards of another collection, IoError naming
  // the blocks and samples that are missing.
  explicit RowReader(const fs::path& output, int threads = 0);  // 0: all cores
  // The shards of one folder alone, of which any blocks may be missing; those of `without` are not
  // looked at.
  static RowReader of_folder(const fs::path& folder, const CollectionFacts& facts,
                             const std::set<int64_t>& without = {});

  RowReader(RowReader&&) noexcept;
  RowReader& operator=(RowReader&&) noexcept;
  ~RowReader();

  const CollectionFacts& facts() const;
  // Of all blocks that will come, as their headers say.
  int64_t num_blocks() const;
  int64_t num_rows() const;  // samples that have one
  std::vector<SkippedSample> skipped() const;
  std::vector<std::string> block_digests() const;

  // Absent after the last. Throws DamagedRows, of all such blocks from here on, with their samples.
  std::optional<ReadBlock> next();

 private:
  struct State;
  explicit RowReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace skein::gradient_features
