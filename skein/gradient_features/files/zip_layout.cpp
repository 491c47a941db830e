// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/zip_layout.h"

#include <algorithm>

#include "skein/core/error.h"

namespace skein::gradient_features {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kNarrow = 0xFFFFFFFF;  // a field of 32 bits that says: see the 64-bit one
constexpr uint64_t kLocalHeaderBytes = 30, kFieldHeaderBytes = 4;
constexpr uint64_t kFirstDay = 0x21;  // 1980-01-01, the earliest that can be said: no real time

void put(std::string& text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
}

uint64_t narrow(uint64_t value) { return std::min(value, kNarrow); }

// In a directory entry: those that do not fit 32 bits; in a local header both sizes or none.
std::string wide_field(const std::vector<uint64_t>& values) {
  std::string field;
  if (values.empty()) return field;
  put(field, 0x0001, 2);
  put(field, 8 * values.size(), 2);
  for (const uint64_t value : values) put(field, value, 8);
  return field;
}

std::vector<uint64_t> wide_sizes(const ZipEntry& entry) {
  if (entry.size < kNarrow) return {};
  return {entry.size, entry.size};
}

// Fills up to the content; the name of the field and its content are torch's.
std::string padding_field(uint64_t bytes) {
  std::string field = "FB";
  put(field, bytes - kFieldHeaderBytes, 2);
  return field + std::string(bytes - kFieldHeaderBytes, 'Z');
}

// What local header and directory entry have in common, from the version on.
std::string common_fields(const ZipEntry& entry, bool is_wide, uint64_t extra_bytes) {
  std::string text;
  put(text, is_wide ? 45 : 20, 2);  // version that can read it
  put(text, 0, 2);                  // flags
  put(text, 0, 2);                  // stored, not compressed
  put(text, 0, 2);                  // midnight
  put(text, kFirstDay, 2);
  put(text, entry.checksum, 4);
  put(text, narrow(entry.size), 4);
  put(text, narrow(entry.size), 4);
  put(text, entry.name.size(), 2);
  put(text, extra_bytes, 2);
  return text;
}

std::string directory_entry(const ZipEntry& entry) {
  auto wide = wide_sizes(entry);
  if (entry.begin >= kNarrow) wide.push_back(entry.begin);
  const auto field = wide_field(wide);
  std::string text;
  put(text, 0x02014b50, 4);
  put(text, wide.empty() ? 20 : 45, 2);  // version that wrote it
  text += common_fields(entry, !wide.empty(), field.size());
  put(text, 0, 2);  // comment
  put(text, 0, 2);  // disk
  put(text, 0, 2);  // internal attributes
  put(text, 0, 4);  // external attributes
  put(text, narrow(entry.begin), 4);
  return text + entry.name + field;
}

// For archives whose directory begins beyond 4 GiB.
std::string wide_end(uint64_t count, uint64_t begin, uint64_t size) {
  std::string text;
  put(text, 0x06064b50, 4);
  put(text, 44, 8);  // bytes that follow
  put(text, 45, 2);
  put(text, 45, 2);
  put(text, 0, 4);
  put(text, 0, 4);
  put(text, count, 8);
  put(text, count, 8);
  put(text, size, 8);
  put(text, begin, 8);
  put(text, 0x07064b50, 4);
  put(text, 0, 4);
  put(text, begin + size, 8);
  put(text, 1, 4);
  return text;
}

}  // namespace

uint64_t ZipLayout::size() const { return directory_begin + directory(*this).size(); }

ZipLayout lay_out_zip(std::vector<ZipEntry> entries) {
  ZipLayout layout{.entries = std::move(entries)};
  uint64_t position = 0;
  for (auto& entry : layout.entries) {
    entry.begin = position;
    const uint64_t least = position + kLocalHeaderBytes + entry.name.size() +
                           wide_field(wide_sizes(entry)).size() + kFieldHeaderBytes;
    entry.data_begin = (least + kAlignment - 1) / kAlignment * kAlignment;
    position = entry.data_begin + entry.size;
  }
  layout.directory_begin = position;
  return layout;
}

std::string local_header(const ZipEntry& entry) {
  const auto wide = wide_field(wide_sizes(entry));
  const uint64_t before = kLocalHeaderBytes + entry.name.size() + wide.size();
  const auto padding = padding_field(entry.data_begin - entry.begin - before);
  std::string text;
  put(text, 0x04034b50, 4);
  text += common_fields(entry, !wide.empty(), wide.size() + padding.size());
  text += entry.name + wide + padding;
  SKEIN_CHECK(entry.begin + text.size() == entry.data_begin, entry.name);
  return text;
}

std::string directory(const ZipLayout& layout) {
  std::string text;
  for (const auto& entry : layout.entries) text += directory_entry(entry);
  const uint64_t size = text.size(), count = layout.entries.size();
  if (layout.directory_begin >= kNarrow) text += wide_end(count, layout.directory_begin, size);
  put(text, 0x06054b50, 4);
  put(text, 0, 2);
  put(text, 0, 2);
  put(text, count, 2);
  put(text, count, 2);
  put(text, size, 4);
  put(text, narrow(layout.directory_begin), 4);
  put(text, 0, 2);  // comment
  return text;
}

}  // namespace skein::gradient_features
