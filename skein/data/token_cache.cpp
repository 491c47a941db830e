// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/token_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "skein/core/error.h"
#include "skein/core/hash.h"

namespace skein::data {
namespace {

constexpr size_t kDigestLength = 32;

struct RawHeader {
  std::array<char, 8> magic = {'S', 'K', 'E', 'I', 'N', 'T', 'O', 'K'};
  uint32_t version = kTokenCacheVersion;
  uint32_t width = 0;
  uint64_t count = 0;
  uint64_t documents = 0;
  uint64_t bad_lines = 0;
  uint64_t largest_token = 0;
  std::array<char, kDigestLength> key = {};
  std::array<char, kDigestLength> digest = {};
  uint64_t reserved = 0;
  uint64_t check = 0;  // hash64 of all bytes before it
};
static_assert(sizeof(RawHeader) == kTokenCacheHeaderBytes);

uint64_t check_of(const RawHeader& raw) {
  return hash64(
      {reinterpret_cast<const char*>(&raw), sizeof(RawHeader) - sizeof(RawHeader::check)});
}

void copy_digits(const std::string& digits, std::array<char, kDigestLength>& out) {
  SKEIN_CHECK(digits.size() == kDigestLength, "a digest has 32 digits");
  std::copy(digits.begin(), digits.end(), out.begin());
}

RawHeader to_raw(const TokenCacheHeader& header) {
  RawHeader raw{.width = static_cast<uint32_t>(header.width),
                .count = header.count,
                .documents = header.documents,
                .bad_lines = header.bad_lines,
                .largest_token = header.largest_token};
  copy_digits(header.key, raw.key);
  copy_digits(header.digest, raw.digest);
  raw.check = check_of(raw);
  return raw;
}

void require(bool condition, const fs::path& path, const char* reason) {
  if (!condition) throw IoError(fmt::format("{}: {}", path.string(), reason));
}

template <typename Id>
void append_as(std::span<const uint32_t> tokens, std::vector<std::byte>& bytes) {
  const size_t old = bytes.size();
  bytes.resize(old + tokens.size() * sizeof(Id));
  std::vector<Id> ids(tokens.begin(), tokens.end());
  std::memcpy(bytes.data() + old, ids.data(), ids.size() * sizeof(Id));
}

}  // namespace

TokenCacheHeader read_token_cache_header(const fs::path& path, const std::string& key) {
  const auto file = File::open_to_read(path);
  const uint64_t size = file.size();
  require(size >= kTokenCacheHeaderBytes, path, "it is shorter than its header");
  RawHeader raw;
  file.read_at(0, std::as_writable_bytes(std::span(&raw, 1)));
  require(raw.magic == RawHeader().magic && raw.version == kTokenCacheVersion, path,
          "it is no file of prepared tokens");
  require(raw.check == check_of(raw), path, "its header is damaged");
  require(raw.width == 2 || raw.width == 4, path, "its header is damaged");
  const uint64_t bytes = size - kTokenCacheHeaderBytes;
  require(bytes % raw.width == 0 && bytes / raw.width == raw.count, path,
          "its size is not what its header says");
  TokenCacheHeader header{.width = static_cast<TokenWidth>(raw.width),
                          .count = raw.count,
                          .documents = raw.documents,
                          .bad_lines = raw.bad_lines,
                          .largest_token = raw.largest_token,
                          .key = std::string(raw.key.data(), raw.key.size()),
                          .digest = std::string(raw.digest.data(), raw.digest.size())};
  require(header.key == key, path, "it holds other data than its name says");
  return header;
}

TokenRegion token_cache_region(const fs::path& path, const TokenCacheHeader& header) {
  return {
      .path = path, .offset = kTokenCacheHeaderBytes, .count = header.count, .width = header.width};
}

TokenCacheWriter::TokenCacheWriter(fs::path path, TokenWidth width)
    : path_(std::move(path)),
      temporary_(path_.string() + ".tmp"),
      width_(width),
      file_(File::create(temporary_)) {
  chunk_.reserve(kDigestChunk);
}

TokenCacheWriter::~TokenCacheWriter() {
  std::error_code ignored;
  if (file_) fs::remove(temporary_, ignored);
}

void TokenCacheWriter::append(std::span<const uint32_t> tokens) {
  while (!tokens.empty()) {
    const size_t room = (kDigestChunk - chunk_.size()) / static_cast<size_t>(width_);
    const auto part = tokens.first(std::min(room, tokens.size()));
    largest_ = std::max<uint64_t>(largest_, *std::ranges::max_element(part));
    if (width_ == TokenWidth::k16) {
      SKEIN_CHECK(largest_ <= UINT16_MAX, "an encoder stays within its vocabulary");
      append_as<uint16_t>(part, chunk_);
    } else {
      append_as<uint32_t>(part, chunk_);
    }
    count_ += part.size();
    tokens = tokens.subspan(part.size());
    if (chunk_.size() == kDigestChunk) flush();
  }
}

void TokenCacheWriter::flush() {
  digest_.add(chunk_);
  file_.write_at(offset_, chunk_);
  offset_ += chunk_.size();
  chunk_.clear();
}

TokenCacheHeader TokenCacheWriter::commit(TokenCacheHeader header) {
  if (!chunk_.empty()) flush();
  header.width = width_;
  header.count = count_;
  header.largest_token = largest_;
  header.digest = digest_.value();
  const auto raw = to_raw(header);
  file_.write_at(0, std::as_bytes(std::span(&raw, 1)));
  file_.sync();
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) {
    throw IoError(fmt::format("cannot rename {} to {}: {}", temporary_.string(), path_.string(),
                              error.message()));
  }
  file_ = File();
  sync_directory(path_.parent_path());
  return header;
}

}  // namespace skein::data
