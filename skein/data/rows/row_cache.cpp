// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "skein/core/error.h"

namespace skein::data {
namespace {

constexpr uint64_t kAlignment = 8;  // of ids, and of the index

uint64_t mask_bytes(uint64_t length) { return (length + 7) / 8; }

uint64_t token_bytes(const RowEntry& entry, TokenWidth width) {
  return entry.length * static_cast<uint64_t>(width) + mask_bytes(entry.length);
}

constexpr uint32_t kDesirable = uint32_t{1} << 31;
constexpr uint32_t kPlain = uint32_t{1} << 31;

// The ids before the first that is trained on; nothing predicts the first of all.
size_t untrained_ids(const text::MaskedTokens& tokens) {
  if (tokens.trained.empty()) return 0;
  const auto first = std::find(tokens.trained.begin() + 1, tokens.trained.end(), uint8_t{1});
  return static_cast<size_t>(first - tokens.trained.begin());
}

uint32_t shared_note(const text::MaskedTokens& chosen, const text::MaskedTokens& rejected) {
  const auto most = std::min(untrained_ids(chosen), untrained_ids(rejected));
  const auto alike =
      std::ranges::mismatch(std::span(chosen.ids).first(most), std::span(rejected.ids).first(most));
  return static_cast<uint32_t>(alike.in1 - std::span(chosen.ids).begin());
}

uint32_t margin_note(const std::optional<double>& margin) {
  const auto none = std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<uint32_t>(margin ? static_cast<float>(*margin) : none);
}

// Whether the notes of a row, or of a pair's two, can be true.
bool has_true_notes(std::span<const RowEntry> row, PreparedKind kind) {
  if (kind == PreparedKind::kPairs) {
    const auto margin = margin_of(row[1]);
    return row[0].note <= std::min(row[0].length, row[1].length) &&
           (!margin || std::isfinite(*margin));
  }
  if (kind != PreparedKind::kFeedback || row[0].num_targets == 0) return true;
  return 0 < prompt_ids(row[0]) && prompt_ids(row[0]) < int64_t{row[0].length};
}

}  // namespace

int64_t empty_turns_of(const RowEntry& entry) { return entry.turns & ~kPlain; }

bool is_plain(const RowEntry& entry) { return (entry.turns & kPlain) != 0; }

int64_t shared_ids(const RowEntry& chosen) { return chosen.note; }

std::optional<double> margin_of(const RowEntry& rejected) {
  const auto margin = std::bit_cast<float>(rejected.note);
  if (std::isnan(margin)) return std::nullopt;
  return margin;
}

int64_t json_bytes(const RowEntry& prompt) { return prompt.note; }

int64_t prompt_ids(const RowEntry& judged) { return judged.note & ~kDesirable; }

bool is_desirable(const RowEntry& judged) { return (judged.note & kDesirable) != 0; }

PreparedKind stored_kind(RowKind kind) {
  switch (kind) {
    case RowKind::kRows:
      return PreparedKind::kRows;
    case RowKind::kPairs:
      return PreparedKind::kPairs;
    case RowKind::kFeedback:
      return PreparedKind::kFeedback;
    case RowKind::kPrompts:
      break;
  }
  return PreparedKind::kPrompts;
}

void RowCacheWriter::append(const EncodedRow& row) {
  SKEIN_CHECK(row.rejected.has_value() == (kind_ == RowKind::kPairs), "a pair has two answers");
  switch (kind_) {
    case RowKind::kRows:
      append(row, row.tokens, 0);
      break;
    case RowKind::kPairs:
      append(row, row.tokens, shared_note(row.tokens, *row.rejected));
      append(row, *row.rejected, margin_note(row.margin));
      break;
    case RowKind::kFeedback:
      append(row, row.tokens,
             static_cast<uint32_t>(untrained_ids(row.tokens)) | (row.desirable ? kDesirable : 0));
      break;
    case RowKind::kPrompts:
      SKEIN_CHECK(row.json.size() <= UINT32_MAX, "a row's JSON has a limit");
      append(row, row.tokens, static_cast<uint32_t>(row.json.size()));
      break;
  }
}

void RowCacheWriter::append(const EncodedRow& row, const text::MaskedTokens& tokens,
                            uint32_t note) {
  const auto& [ids, trained, empty_turns] = tokens;
  SKEIN_CHECK(ids.size() <= UINT32_MAX / 4, "a row is shorter than its text");
  RowEntry entry{.offset = file_.offset(),
                 .length = static_cast<uint32_t>(ids.size()),
                 .file = static_cast<uint32_t>(row.file),
                 .number = static_cast<uint32_t>(std::min<uint64_t>(row.number, UINT32_MAX)),
                 .turns = empty_turns | (row.is_plain ? kPlain : 0),
                 .note = note};
  std::vector<std::byte> mask(mask_bytes(ids.size()));
  for (size_t i = 1; i < ids.size(); ++i) {  // nothing predicts the first
    if (trained[i] == 0) continue;
    mask[i / 8] |= std::byte{1} << (i % 8);
    ++entry.num_targets;
  }
  SKEIN_CHECK(std::ranges::none_of(ids, [](int32_t id) { return id < 0; }), "ids are not negative");
  const std::vector<uint32_t> words(ids.begin(), ids.end());
  file_.append(ids_.bytes_of(words));
  const auto json = std::as_bytes(std::span(row.json));
  mask.insert(mask.end(), json.begin(), json.end());
  append_padded(std::move(mask));
  count_ += ids.size();
  index_.push_back(entry);
}

void RowCacheWriter::append_padded(std::vector<std::byte> bytes) {
  const uint64_t end = file_.offset() + bytes.size();
  bytes.resize(bytes.size() + (kAlignment - end % kAlignment) % kAlignment);
  file_.append(bytes);
}

TokenCacheHeader RowCacheWriter::commit(TokenCacheHeader header) {
  header.kind = stored_kind(kind_);
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

RowArray::RowArray(const fs::path& path, const TokenCacheHeader& header)
    : width_(header.width), holds_json_(header.kind == PreparedKind::kPrompts) {
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
    const uint64_t bytes =
        token_bytes(entry, width_) + (holds_json_ ? static_cast<uint64_t>(entry.note) : 0);
    const bool is_inside = entry.offset % kAlignment == 0 && entry.offset <= header.index_offset &&
                           bytes <= header.index_offset - entry.offset;
    if (!is_inside || entry.num_targets > entry.length) refuse("its index is damaged");
  }
  const size_t of_a_row = header.kind == PreparedKind::kPairs ? 2 : 1;
  if (index_.size() % of_a_row != 0) refuse("its last pair is half of one");
  for (size_t at = 0; at < index_.size(); at += of_a_row) {
    if (!has_true_notes(index_.subspan(at, of_a_row), header.kind)) refuse("its index is damaged");
  }
}

const std::byte* RowArray::ids_of(int64_t row) const { return mapping_.get() + entry(row).offset; }

void RowArray::read(int64_t row, std::span<int64_t> out, int64_t begin) const {
  SKEIN_CHECK(0 <= begin && begin + std::ssize(out) <= int64_t{entry(row).length},
              "a row ends where it ends");
  if (width_ == TokenWidth::k16) {
    const auto* ids = reinterpret_cast<const uint16_t*>(ids_of(row)) + begin;
    std::copy_n(ids, out.size(), out.begin());
  } else {
    const auto* ids = reinterpret_cast<const uint32_t*>(ids_of(row)) + begin;
    std::copy_n(ids, out.size(), out.begin());
  }
}

bool RowArray::is_trained(int64_t row, int64_t at) const {
  const auto* mask = ids_of(row) + entry(row).length * static_cast<uint64_t>(width_);
  return (mask[at / 8] >> (at % 8) & std::byte{1}) != std::byte{0};
}

std::string_view RowArray::json(int64_t row) const {
  SKEIN_CHECK(holds_json_, "of prompts alone the rows are kept");
  const auto& prompt = entry(row);
  const auto* text = ids_of(row) + token_bytes(prompt, width_);
  return {reinterpret_cast<const char*>(text), static_cast<size_t>(json_bytes(prompt))};
}

bool RowArray::begin_alike(int64_t row, int64_t other, int64_t count) const {
  SKEIN_CHECK(count <= std::min<int64_t>(entry(row).length, entry(other).length),
              "a row ends where it ends");
  const auto bytes = static_cast<size_t>(count) * static_cast<size_t>(width_);
  return std::memcmp(ids_of(row), ids_of(other), bytes) == 0;
}

}  // namespace skein::data
