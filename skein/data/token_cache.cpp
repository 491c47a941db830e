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

using Magic = std::array<char, 8>;
constexpr Magic kTokensMagic = {'S', 'K', 'E', 'I', 'N', 'T', 'O', 'K'};
constexpr Magic kRowsMagic = {'S', 'K', 'E', 'I', 'N', 'R', 'O', 'W'};
constexpr Magic kPairsMagic = {'S', 'K', 'E', 'I', 'N', 'P', 'R', 'S'};
constexpr Magic kFeedbackMagic = {'S', 'K', 'E', 'I', 'N', 'F', 'B', 'K'};
constexpr Magic kPromptsMagic = {'S', 'K', 'E', 'I', 'N', 'P', 'M', 'T'};

const Magic& magic_of(PreparedKind kind) {
  switch (kind) {
    case PreparedKind::kTokens:
      return kTokensMagic;
    case PreparedKind::kRows:
      return kRowsMagic;
    case PreparedKind::kPairs:
      return kPairsMagic;
    case PreparedKind::kFeedback:
      return kFeedbackMagic;
    case PreparedKind::kPrompts:
      break;
  }
  return kPromptsMagic;
}

struct RawHeader {
  Magic magic = kTokensMagic;
  uint32_t version = 0;
  uint32_t width = 0;
  uint64_t count = 0;
  uint64_t documents = 0;
  uint64_t bad_lines = 0;
  uint64_t largest_token = 0;
  std::array<char, kDigestLength> key = {};
  std::array<char, kDigestLength> digest = {};
  uint64_t index_offset = 0;
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
  RawHeader raw{.magic = magic_of(header.kind),
                .version = prepared_version(header.kind),
                .width = static_cast<uint32_t>(header.width),
                .count = header.count,
                .documents = header.documents,
                .bad_lines = header.bad_lines,
                .largest_token = header.largest_token,
                .index_offset = header.index_offset};
  copy_digits(header.key, raw.key);
  copy_digits(header.digest, raw.digest);
  raw.check = check_of(raw);
  return raw;
}

void require(bool condition, const fs::path& path, const char* reason) {
  if (!condition) throw IoError(fmt::format("{}: {}", path.string(), reason));
}

// Whether the file's size is what its header says.
bool has_size(const RawHeader& raw, PreparedKind kind, uint64_t size) {
  if (kind == PreparedKind::kTokens) {
    const uint64_t bytes = size - kTokenCacheHeaderBytes;
    return bytes % raw.width == 0 && bytes / raw.width == raw.count;
  }
  if (raw.index_offset < kTokenCacheHeaderBytes || raw.index_offset > size) return false;
  const uint64_t index = size - raw.index_offset;
  return index % kRowEntryBytes == 0 && index / kRowEntryBytes == raw.documents;
}

}  // namespace

TokenCacheHeader read_token_cache_header(const fs::path& path, const std::string& key,
                                         PreparedKind kind) {
  const auto file = File::open_to_read(path);
  const uint64_t size = file.size();
  require(size >= kTokenCacheHeaderBytes, path, "it is shorter than its header");
  RawHeader raw;
  file.read_at(0, std::as_writable_bytes(std::span(&raw, 1)));
  require(raw.magic == magic_of(kind) && raw.version == prepared_version(kind), path,
          "it is no file of prepared data");
  require(raw.check == check_of(raw), path, "its header is damaged");
  require(raw.width == 2 || raw.width == 4, path, "its header is damaged");
  require(has_size(raw, kind, size), path, "its size is not what its header says");
  TokenCacheHeader header{.kind = kind,
                          .width = static_cast<TokenWidth>(raw.width),
                          .count = raw.count,
                          .documents = raw.documents,
                          .bad_lines = raw.bad_lines,
                          .largest_token = raw.largest_token,
                          .index_offset = raw.index_offset,
                          .key = std::string(raw.key.data(), raw.key.size()),
                          .digest = std::string(raw.digest.data(), raw.digest.size())};
  require(header.key == key, path, "it holds other data than its name says");
  return header;
}

TokenRegion token_cache_region(const fs::path& path, const TokenCacheHeader& header) {
  return {
      .path = path, .offset = kTokenCacheHeaderBytes, .count = header.count, .width = header.width};
}

PreparedFileWriter::PreparedFileWriter(fs::path path)
    : path_(std::move(path)), temporary_(path_.string() + ".tmp"), file_(File::create(temporary_)) {
  chunk_.reserve(kDigestChunk);
}

PreparedFileWriter::~PreparedFileWriter() {
  std::error_code ignored;
  if (file_) fs::remove(temporary_, ignored);
}

void PreparedFileWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(kDigestChunk - chunk_.size(), bytes.size()));
    chunk_.insert(chunk_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (chunk_.size() == kDigestChunk) flush();
  }
}

void PreparedFileWriter::flush() {
  digest_.add(chunk_);
  file_.write_at(offset_, chunk_);
  offset_ += chunk_.size();
  chunk_.clear();
}

TokenCacheHeader PreparedFileWriter::commit(TokenCacheHeader header) {
  if (!chunk_.empty()) flush();
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

std::span<const std::byte> IdBytes::bytes_of(std::span<const uint32_t> ids) {
  if (ids.empty()) return {};
  largest_ = std::max<uint64_t>(largest_, *std::ranges::max_element(ids));
  if (width_ == TokenWidth::k32) return std::as_bytes(ids);
  SKEIN_CHECK(largest_ <= UINT16_MAX, "an encoder stays within its vocabulary");
  const std::vector<uint16_t> narrow(ids.begin(), ids.end());
  bytes_.resize(std::as_bytes(std::span(narrow)).size());
  std::memcpy(bytes_.data(), narrow.data(), bytes_.size());
  return bytes_;
}

void TokenCacheWriter::append(std::span<const uint32_t> tokens) {
  file_.append(ids_.bytes_of(tokens));
  count_ += tokens.size();
}

TokenCacheHeader TokenCacheWriter::commit(TokenCacheHeader header) {
  header.width = ids_.width();
  header.count = count_;
  header.largest_token = ids_.largest();
  return file_.commit(std::move(header));
}

}  // namespace skein::data
