// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How are prepared tokens and rows stored? Byte for byte in docs/data.md, "Prepared files".
//
// A file is complete or does not exist: it is written under a temporary name, synced and renamed.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/data/content_digest.h"
#include "skein/data/token_array.h"

namespace skein::data {

enum class PreparedKind { kTokens, kRows, kPairs, kFeedback, kPrompts };

// Part of every file's name: a new version leaves the files of the old one alone.
constexpr uint32_t prepared_version(PreparedKind kind) {
  return kind == PreparedKind::kRows ? 3 : 1;
}

// How the names of its files end.
constexpr std::string_view prepared_name(PreparedKind kind) {
  switch (kind) {
    case PreparedKind::kTokens:
      return "tokens";
    case PreparedKind::kRows:
      return "rows";
    case PreparedKind::kPairs:
      return "pairs";
    case PreparedKind::kFeedback:
      return "feedback";
    case PreparedKind::kPrompts:
      break;
  }
  return "prompts";
}

struct TokenCacheHeader {
  PreparedKind kind = PreparedKind::kTokens;
  TokenWidth width = TokenWidth::k16;
  uint64_t count = 0;
  uint64_t documents = 0;  // or rows; of pairs: answers
  uint64_t bad_lines = 0;  // that were left out
  uint64_t largest_token = 0;
  uint64_t index_offset = 0;  // of rows: where the file's index of them begins
  std::string key;            // 32 hexadecimal digits: the file's name
  std::string digest;         // of all after the header, see content_digest.h

  bool operator==(const TokenCacheHeader&) const = default;
};

constexpr uint64_t kTokenCacheHeaderBytes = 128;
constexpr uint64_t kRowEntryBytes = 32;  // of the index of rows

// Safe on hostile bytes. Throws IoError with the reason when the header is broken, belongs to
// another key or kind, or does not fit the file's size. Does not read what follows it.
TokenCacheHeader read_token_cache_header(const fs::path& path, const std::string& key,
                                         PreparedKind kind = PreparedKind::kTokens);

TokenRegion token_cache_region(const fs::path& path, const TokenCacheHeader& header);

// Writes what follows a header, and then the header.
class PreparedFileWriter {
 public:
  // One writer at a time per path: the caller holds a lock. Throws IoError, also when the disk is
  // full; whatever happens before commit() has returned, nothing is left behind.
  explicit PreparedFileWriter(fs::path path);
  ~PreparedFileWriter();
  PreparedFileWriter(const PreparedFileWriter&) = delete;
  PreparedFileWriter& operator=(const PreparedFileWriter&) = delete;

  void append(std::span<const std::byte> bytes);
  // Where the next byte goes, counted from the file's start.
  uint64_t offset() const { return offset_ + chunk_.size(); }
  // The caller says all but the digest; returns the complete header.
  TokenCacheHeader commit(TokenCacheHeader header);

 private:
  void flush();

  fs::path path_, temporary_;
  File file_;
  std::vector<std::byte> chunk_;
  ChunkedDigest digest_;
  uint64_t offset_ = kTokenCacheHeaderBytes;
};

// Ids, 16 or 32 bits wide.
class IdBytes {
 public:
  explicit IdBytes(TokenWidth width) : width_(width) {}

  TokenWidth width() const { return width_; }
  uint64_t largest() const { return largest_; }
  // As files hold them; valid until the next call.
  std::span<const std::byte> bytes_of(std::span<const uint32_t> ids);

 private:
  TokenWidth width_;
  uint64_t largest_ = 0;
  std::vector<std::byte> bytes_;
};

class TokenCacheWriter {
 public:
  // As PreparedFileWriter.
  TokenCacheWriter(fs::path path, TokenWidth width) : file_(std::move(path)), ids_(width) {}

  void append(std::span<const uint32_t> tokens);
  // The caller says what it knows (key, documents, bad_lines); returns the complete header.
  TokenCacheHeader commit(TokenCacheHeader header);

 private:
  PreparedFileWriter file_;
  IdBytes ids_;
  uint64_t count_ = 0;
};

}  // namespace skein::data
