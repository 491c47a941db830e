// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "skein/core/error.h"

namespace skein::data {
namespace {

constexpr uint64_t kAlignment = 8;  // of ids, and of the index

uint64_t mask_bytes(uint64_t length) { return (length + 7) / 8; }

uint64_t stored_bytes(const RowEntry& entry, TokenWidth width) {
  return entry.length * static_cast<uint64_t>(width) + mask_bytes(entry.length);
}

}  // namespace

void RowCacheWriter::append(const EncodedRow& row) {
  const auto& [ids, trained, empty_turns] = row.tokens;
  SKEIN_CHECK(ids.size() <= UINT32_MAX / 4, "a row is shorter than its text");
  RowEntry entry{.offset = file_.offset(),
                 .length = static_cast<uint32_t>(ids.size()),
                 .file = static_cast<uint32_t>(row.file),
                 .number = static_cast<uint32_t>(std::min<uint64_t>(row.number, UINT32_MAX)),
                 .empty_turns = empty_turns};
  std::vector<std::byte> mask(mask_bytes(ids.size()));
  for (size_t i = 1; i < ids.size(); ++i) {  // nothing predicts the first
    if (trained[i] == 0) continue;
    mask[i / 8] |= std::byte{1} << (i % 8);
    ++entry.num_targets;
  }
  SKEIN_CHECK(std::ranges::none_of(ids, [](int32_t id) { return id < 0; }), "ids are not negative");
  const std::vector<uint32_t> words(ids.begin(), ids.end());
  file_.append(ids_.bytes_of(words));
  const uint64_t end = file_.offset() + mask.size();
  mask.resize(mask.size() + (kAlignment - end % kAlignment) % kAlignment);
  file_.append(mask);
  count_ += ids.size();
  index_.push_back(entry);
}

TokenCacheHeader RowCacheWriter::commit(TokenCacheHeader header) {
  header.kind = PreparedKind::kRows;
  header.width = ids_.width();
  header.count = count_;
  header.documents = index_.size();
  header.largest_token = ids_.largest();
  header.index_offset = file_.offset();
  file_.append(std::as_bytes(std::span(index_)));
  return file_.commit(std::move(header));
}

void RowArray::Unmap::operator()(const std::byte* start) const {
  ::munmap(const_cast<std::byte*>(start), bytes);
}

RowArray::RowArray(const fs::path& path, const TokenCacheHeader& header) : width_(header.width) {
  const auto refuse = [&](const char* why) {
    throw IoError(fmt::format("{}: {}", path.string(), why));
  };
  const auto file = File::open_to_read(path);
  const uint64_t size = header.index_offset + header.documents * kRowEntryBytes;
  if (file.size() != size) refuse("its size is not what its header says");
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (start == MAP_FAILED) throw_errno(fmt::format("cannot map {}", path.string()));
  mapping_ = {static_cast<const std::byte*>(start), Unmap{size}};
  if (header.index_offset % kAlignment != 0) refuse("its index is damaged");
  const auto* first = reinterpret_cast<const RowEntry*>(mapping_.get() + header.index_offset);
  index_ = {first, static_cast<size_t>(header.documents)};
  for (const auto& entry : index_) {
    const bool is_inside = entry.offset % kAlignment == 0 && entry.offset <= header.index_offset &&
                           stored_bytes(entry, width_) <= header.index_offset - entry.offset;
    if (!is_inside || entry.num_targets > entry.length) refuse("its index is damaged");
  }
}

const std::byte* RowArray::ids_of(int64_t row) const { return mapping_.get() + entry(row).offset; }

void RowArray::read(int64_t row, std::span<int64_t> out) const {
  SKEIN_CHECK(out.size() <= entry(row).length, "a row ends where it ends");
  if (width_ == TokenWidth::k16) {
    const auto* ids = reinterpret_cast<const uint16_t*>(ids_of(row));
    std::copy_n(ids, out.size(), out.begin());
  } else {
    const auto* ids = reinterpret_cast<const uint32_t*>(ids_of(row));
    std::copy_n(ids, out.size(), out.begin());
  }
}

bool RowArray::is_trained(int64_t row, int64_t at) const {
  const auto* mask = ids_of(row) + entry(row).length * static_cast<uint64_t>(width_);
  return (mask[at / 8] >> (at % 8) & std::byte{1}) != std::byte{0};
}

}  // namespace skein::data
