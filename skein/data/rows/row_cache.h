// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How are prepared rows stored? Byte for byte in docs/data.md, "Prepared rows".
//
// Each row's ids and mask lie behind each other, whole, however long; an index of all rows follows
// them. What of a row is trained on is decided when it is read, so that another cutoff_len needs no
// other file.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/data/rows/encode_rows.h"
#include "skein/data/token_cache.h"

namespace skein::data {

// Stored on disk: see docs/data.md.
struct RowEntry {
  uint64_t offset = 0;       // of its ids, from the file's start: a multiple of 8
  uint32_t length = 0;       // ids
  uint32_t num_targets = 0;  // of these, that are trained on; the first id is never
  uint32_t file = 0;         // where it came from: place in the list of files,
  uint32_t number = 0;       // and line or place in the list
  uint32_t empty_turns = 0;  // MaskedTokens::empty_turns
  uint32_t reserved = 0;     // zero

  bool operator==(const RowEntry&) const = default;
};
static_assert(sizeof(RowEntry) == kRowEntryBytes);

class RowCacheWriter {
 public:
  // As PreparedFileWriter.
  RowCacheWriter(fs::path path, TokenWidth width) : file_(std::move(path)), ids_(width) {}

  void append(const EncodedRow& row);
  // The caller says what it knows (key, bad_lines); returns the complete header.
  TokenCacheHeader commit(TokenCacheHeader header);

 private:
  PreparedFileWriter file_;
  IdBytes ids_;
  uint64_t count_ = 0;
  std::vector<RowEntry> index_;
};

// The rows of a prepared file, mapped. Const calls are thread-safe.
class RowArray {
 public:
  RowArray() = default;
  // Throws IoError when the index does not fit the file.
  RowArray(const fs::path& path, const TokenCacheHeader& header);

  int64_t count() const { return std::ssize(index_); }
  const RowEntry& entry(int64_t row) const { return index_[static_cast<size_t>(row)]; }
  // The first ids of a row, as many as `out` has room for; requires no more than its length.
  void read(int64_t row, std::span<int64_t> out) const;
  // Whether an id of the row is trained on; requires 0 <= at < its length.
  bool is_trained(int64_t row, int64_t at) const;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(const std::byte* start) const;
  };
  const std::byte* ids_of(int64_t row) const;

  std::unique_ptr<const std::byte, Unmap> mapping_;
  std::span<const RowEntry> index_;
  TokenWidth width_ = TokenWidth::k16;
};

}  // namespace skein::data
