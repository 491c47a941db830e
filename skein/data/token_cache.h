// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How are prepared tokens stored? Byte for byte in docs/data.md, "Prepared files".
//
// A file is complete or does not exist: it is written under a temporary name, synced and renamed.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "skein/data/content_digest.h"
#include "skein/data/token_array.h"

namespace skein::data {

// Part of every file's name: a new version leaves the files of the old one alone.
constexpr uint32_t kTokenCacheVersion = 1;

struct TokenCacheHeader {
  TokenWidth width = TokenWidth::k16;
  uint64_t count = 0;
  uint64_t documents = 0;
  uint64_t bad_lines = 0;  // that were left out
  uint64_t largest_token = 0;
  std::string key;     // 32 hexadecimal digits: the file's name
  std::string digest;  // of the tokens, see content_digest.h

  bool operator==(const TokenCacheHeader&) const = default;
};

constexpr uint64_t kTokenCacheHeaderBytes = 128;

// Safe on hostile bytes. Throws IoError with the reason when the header is broken, belongs to
// another key, or does not fit the file's size. Does not read the tokens.
TokenCacheHeader read_token_cache_header(const fs::path& path, const std::string& key);

TokenRegion token_cache_region(const fs::path& path, const TokenCacheHeader& header);

class TokenCacheWriter {
 public:
  // One writer at a time per path: the caller holds a lock. Throws IoError, also when the disk is
  // full; whatever happens before commit() has returned, nothing is left behind.
  TokenCacheWriter(fs::path path, TokenWidth width);
  ~TokenCacheWriter();
  TokenCacheWriter(const TokenCacheWriter&) = delete;
  TokenCacheWriter& operator=(const TokenCacheWriter&) = delete;

  void append(std::span<const uint32_t> tokens);
  // The caller says what it knows (key, documents, bad_lines); returns the complete header.
  TokenCacheHeader commit(TokenCacheHeader header);

 private:
  void flush();

  fs::path path_, temporary_;
  TokenWidth width_;
  File file_;
  std::vector<std::byte> chunk_;
  ChunkedDigest digest_;
  uint64_t count_ = 0;
  uint64_t largest_ = 0;
  uint64_t offset_ = kTokenCacheHeaderBytes;
};

}  // namespace skein::data
