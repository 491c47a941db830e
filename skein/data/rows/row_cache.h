// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How are prepared rows stored? Byte for byte in docs/data.md, "Prepared rows".
//
// Each row's ids and mask lie behind each other, whole, however long; an index of all rows follows
// them. What of a row is trained on is decided when it is read, so that another cutoff_len needs no
// other file. A pair is two such rows, the chosen answer and the rejected one, each behind the
// prompt. Behind a prompt lies its row's JSON, of which rewards may want any column.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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
  uint32_t turns = 0;        // read below
  uint32_t note = 0;         // read below; of rows that nobody has judged: zero

  bool operator==(const RowEntry&) const = default;
};
static_assert(sizeof(RowEntry) == kRowEntryBytes);

// MaskedTokens::empty_turns.
int64_t empty_turns_of(const RowEntry& entry);
// EncodedRow::is_plain.
bool is_plain(const RowEntry& entry);
// Of a chosen answer: the ids that both answers begin with, and that neither is trained on.
int64_t shared_ids(const RowEntry& chosen);
// Of a rejected one; absent: the row said none.
std::optional<double> margin_of(const RowEntry& rejected);
// Of an answer that was judged alone: the ids before those that are trained on.
int64_t prompt_ids(const RowEntry& judged);
bool is_desirable(const RowEntry& judged);

// How rows of a kind are stored, and how many entries each of them has.
PreparedKind stored_kind(RowKind kind);
// Of a prompt: the bytes of its row's JSON, which lie behind its mask.
int64_t json_bytes(const RowEntry& prompt);
constexpr int64_t answers_of(RowKind kind) { return kind == RowKind::kPairs ? 2 : 1; }

class RowCacheWriter {
 public:
  // As PreparedFileWriter.
  RowCacheWriter(fs::path path, TokenWidth width, RowKind kind = RowKind::kRows)
      : kind_(kind), file_(std::move(path)), ids_(width) {}

  void append(const EncodedRow& row);
  // The caller says what it knows (key, bad_lines); returns the complete header.
  TokenCacheHeader commit(TokenCacheHeader header);

 private:
  void append(const EncodedRow& row, const text::MaskedTokens& tokens, uint32_t note);
  void append_padded(std::vector<std::byte> bytes);

  RowKind kind_;
  PreparedFileWriter file_;
  IdBytes ids_;
  uint64_t count_ = 0;
  std::vector<RowEntry> index_;
};

// The rows of a prepared file, mapped; of pairs, both answers of each in turn. Const calls are
// thread-safe.
class RowArray {
 public:
  RowArray() = default;
  // Throws IoError when the index does not fit the file, or its kind.
  RowArray(const fs::path& path, const TokenCacheHeader& header);

  int64_t count() const { return std::ssize(index_); }
  const RowEntry& entry(int64_t row) const { return index_[static_cast<size_t>(row)]; }
  // The ids of a row from `begin` on, as many as `out` has room for; requires that they are there.
  void read(int64_t row, std::span<int64_t> out, int64_t begin = 0) const;
  // Whether an id of the row is trained on; requires 0 <= at < its length.
  bool is_trained(int64_t row, int64_t at) const;
  // Of a prompt, its row as it stands in its file. Valid as long as this.
  std::string_view json(int64_t row) const;
  // Whether two rows begin with the same ids; requires at least so many in each.
  bool begin_alike(int64_t row, int64_t other, int64_t count) const;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(const std::byte* start) const;
  };
  const std::byte* ids_of(int64_t row) const;

  std::unique_ptr<const std::byte, Unmap> mapping_;
  std::span<const RowEntry> index_;
  TokenWidth width_ = TokenWidth::k16;
  bool holds_json_ = false;  // of prompts
};

}  // namespace skein::data
