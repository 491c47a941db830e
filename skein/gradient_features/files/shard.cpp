// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/convert/float_values.h"
#include "skein/core/foreign_text.h"
#include "skein/core/hash.h"
#include "skein/core/log.h"
#include "skein/core/system_failure.h"
#include "skein/gradient_features/files/new_file.h"

namespace skein::gradient_features {
namespace {

using checkpoint::Metadata;

constexpr std::string_view kKind = "skein gradient block";
constexpr std::string_view kVersion = "1";  // stored on disk: a reader refuses others
constexpr std::string_view kNameStart = "block-", kNameEnd = ".safetensors";
constexpr uint64_t kHeaderRoom = 4096;      // of a header without skipped samples, at most
constexpr uint64_t kSkippedTextBytes = 32;  // of one in the header, at most

[[noreturn]] void refuse(std::string_view file, const std::string& why) {
  throw IoError(fmt::format("{}: {}", file, why));
}

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && stop == text.data() + text.size();
  return is_whole && value >= 0 ? std::optional(value) : std::nullopt;
}

std::string_view word_of(SkipReason reason) {
  return reason == SkipReason::kNoTarget ? "no_target" : "not_finite";
}

std::optional<SkippedSample> parse_skipped(std::string_view text) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto sample = parse_count(text.substr(0, colon));
  if (!sample) return std::nullopt;
  for (const auto reason : {SkipReason::kNoTarget, SkipReason::kNotFinite}) {
    if (text.substr(colon + 1) == word_of(reason)) return SkippedSample{*sample, reason};
  }
  return std::nullopt;
}

std::vector<SkippedSample> skipped_in(std::string_view text, std::string_view file) {
  std::vector<SkippedSample> skipped;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto one = parse_skipped(text.substr(0, comma));
    if (!one) refuse(file, fmt::format("'{}' is no skipped sample", shown(text.substr(0, comma))));
    skipped.push_back(*one);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return skipped;
}

std::vector<checkpoint::TensorEntry> tensors_of(const CollectionFacts& facts, int64_t num_rows) {
  const auto rows = static_cast<uint64_t>(num_rows);
  return {{"rows", facts.output_dtype, {rows, static_cast<uint64_t>(facts.dimension())}},
          {"samples", DType::kI64, {rows}}};
}

std::string header_text(const ShardHeader& header, const KnownCollection& collection,
                        std::vector<checkpoint::PlacedTensor>& tensors) {
  const Metadata metadata = {{"format", "pt"},
                             {"kind", std::string(kKind)},
                             {"version", std::string(kVersion)},
                             {"block", fmt::format("{}", header.block)},
                             {"collection", collection.digest},
                             {"skipped", skipped_text(header.skipped)},
                             {"digest", header.digest}};
  return checkpoint::build_header(tensors_of(collection.facts, header.num_rows), tensors, metadata);
}

// `samples` and `rows` are the bytes of the tensors.
std::string digest_of(const ShardHeader& header, const KnownCollection& collection,
                      std::span<const std::byte> samples, std::span<const std::byte> rows) {
  return digest(fmt::format("{} {}\n{}\n{}\n{}\n{}\n{}\n", kKind, kVersion, header.block,
                            collection.digest, skipped_text(header.skipped), digest(samples),
                            digest(rows)));
}

const std::string& metadata_value(const Metadata& metadata, const char* key,
                                  std::string_view file) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) refuse(file, fmt::format("its header has no '{}'", key));
  return found->second;
}

void check_origin(const Metadata& metadata, std::string_view file,
                  const KnownCollection& collection) {
  if (metadata_value(metadata, "kind", file) != kKind) refuse(file, "it is no block of gradients");
  const auto& version = metadata_value(metadata, "version", file);
  if (version != kVersion) {
    refuse(file,
           fmt::format("format version {}, and this program reads {}", shown(version), kVersion));
  }
  const auto& origin = metadata_value(metadata, "collection", file);
  if (origin == collection.digest) return;
  throw ForeignShard(fmt::format(
      "{} belongs to another collection ({}, not {}): other data, weights or flags made it. Move "
      "it elsewhere, or give another output_path",
      file, shown(origin), collection.digest));
}

// The shape of `rows`, whatever else may be wrong: header_text() is compared afterwards.
int64_t rows_in(const checkpoint::Header& header, std::string_view file) {
  for (const auto& tensor : header.tensors) {
    if (tensor.name == "rows" && !tensor.shape.empty() &&
        tensor.shape[0] <= static_cast<uint64_t>(kMaxSamplesPerBlock)) {
      return static_cast<int64_t>(tensor.shape[0]);
    }
  }
  refuse(file, "it has no rows");
}

void check_counts(const ShardHeader& header, std::string_view file, const CollectionFacts& facts) {
  if (header.block >= facts.num_blocks()) {
    refuse(file, fmt::format("block {} of {}", header.block, facts.num_blocks()));
  }
  const auto range = samples_of_block(facts, header.block);
  const auto count = header.num_rows + static_cast<int64_t>(header.skipped.size());
  if (count != range.last - range.first) {
    refuse(file, fmt::format("{} rows and {} skipped samples, expected {} in all", header.num_rows,
                             header.skipped.size(), range.last - range.first));
  }
}

// Every sample of the block is in one of the two lists.
bool cover(const SampleRange& range, std::span<const int64_t> samples,
           std::span<const SkippedSample> skipped) {
  for (int64_t sample = range.first; sample < range.last; ++sample) {
    if (!samples.empty() && samples.front() == sample) {
      samples = samples.subspan(1);
    } else if (!skipped.empty() && skipped.front().sample == sample) {
      skipped = skipped.subspan(1);
    } else {
      return false;
    }
  }
  return samples.empty() && skipped.empty();
}

std::vector<std::byte> rounded_rows(const CollectionFacts& facts, const BlockRows& rows) {
  std::vector<std::byte> bytes(rows.rows.size() * dtype_bytes(facts.output_dtype));
  if (convert::from_floats(rows.rows, facts.output_dtype, bytes) == 0) return bytes;
  const auto large = std::ranges::max_element(
      rows.rows, [](float a, float b) { return std::abs(a) < std::abs(b); });
  const auto row = (large - rows.rows.begin()) / facts.dimension();
  throw UserError(fmt::format(
      "the row of sample {} has {}, which float16 cannot hold (65504 at most): collect with "
      "--output_dtype float32",
      rows.samples[static_cast<size_t>(row)], *large));
}

}  // namespace

std::string skipped_text(const std::vector<SkippedSample>& skipped) {
  std::string text;
  for (const auto& [sample, reason] : skipped) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", sample, word_of(reason));
  }
  return text;
}

std::string shard_name(int64_t block) {
  return fmt::format("{}{:08}{}", kNameStart, block, kNameEnd);
}

std::optional<int64_t> block_of_name(std::string_view name) {
  if (!name.starts_with(kNameStart) || !name.ends_with(kNameEnd) ||
      name.size() < kNameStart.size() + kNameEnd.size()) {
    return std::nullopt;
  }
  const auto digits =
      name.substr(kNameStart.size(), name.size() - kNameStart.size() - kNameEnd.size());
  const auto block = parse_count(digits);
  return block && shard_name(*block) == name ? block : std::nullopt;
}

ShardHeader read_shard_header(const File& file, std::string_view name,
                              const KnownCollection& collection) {
  const auto parsed = checkpoint::read_header(file, name);
  check_origin(parsed.metadata, name, collection);
  const auto block = parse_count(metadata_value(parsed.metadata, "block", name));
  if (!block) refuse(name, "its header has no block");
  ShardHeader header{.block = *block,
                     .num_rows = rows_in(parsed, name),
                     .skipped = skipped_in(metadata_value(parsed.metadata, "skipped", name), name),
                     .digest = metadata_value(parsed.metadata, "digest", name)};
  check_counts(header, name, collection.facts);
  std::vector<checkpoint::PlacedTensor> tensors;
  const auto expected = header_text(header, collection, tensors);
  std::string text(parsed.data_begin, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  if (text != expected) refuse(name, "its header is not what skein writes");
  for (const auto& tensor : tensors) {
    (tensor.name == "rows" ? header.rows_begin : header.samples_begin) =
        parsed.data_begin + tensor.begin;
  }
  return header;
}

FoundShard find_shard(const fs::path& path, const KnownCollection& collection) {
  FoundShard found{.path = path, .header = {}};
  try_again([&] {
    found.header = read_shard_header(File::open_to_read(path), path.string(), collection);
  });
  if (block_of_name(path.filename().string()) != found.header.block) {
    refuse(path.string(), fmt::format("it holds block {}", found.header.block));
  }
  return found;
}

ReadBlock read_shard(const File& file, std::string_view name, const KnownCollection& collection,
                     const std::shared_ptr<spill::PageShelf>& shelf) {
  const auto header = read_shard_header(file, name, collection);
  const auto& facts = collection.facts;
  ReadBlock block;
  block.block = header.block;
  block.range = samples_of_block(facts, header.block);
  block.samples.resize(static_cast<size_t>(header.num_rows));
  block.skipped = header.skipped;
  const auto samples = std::as_writable_bytes(std::span(block.samples));
  file.read_at(header.samples_begin, samples);
  const auto values = static_cast<size_t>(header.num_rows * facts.dimension());
  auto [memory, rows] =
      spill::read_run(file, header.rows_begin, values * dtype_bytes(facts.output_dtype), shelf);
  if (digest_of(header, collection, samples, rows) != header.digest) {
    refuse(name, "its bytes are not those that were written (the digest differs)");
  }
  if (!cover(block.range, block.samples, block.skipped)) {
    refuse(name, "its samples are not those of its block");
  }
  if (facts.output_dtype == DType::kF32) {  // at a multiple of 8, as all tensors of such files
    block.rows = {reinterpret_cast<const float*>(rows.data()), values};
    block.bytes = std::move(memory);
  } else {
    block.floats.resize(values);
    convert::to_floats(facts.output_dtype, rows, block.floats);
    block.rows = block.floats;
  }
  return block;
}

ReadBlock read_shard(const fs::path& path, const KnownCollection& collection,
                     const std::shared_ptr<spill::PageShelf>& shelf) {
  ReadBlock block;
  try_again(
      [&] { block = read_shard(File::open_to_read(path), path.string(), collection, shelf); });
  return block;
}

ReadBlock read_copies(const std::vector<FoundShard>& copies, const KnownCollection& collection,
                      const std::shared_ptr<spill::PageShelf>& shelf) {
  std::optional<IoError> damage;
  for (const auto& copy : copies) {
    try {
      auto block = read_shard(copy.path, collection, shelf);
      if (damage) log_warning("{}; another copy of its block is whole", damage->what());
      return block;
    } catch (const SystemFailure&) {
      throw;  // nothing is known about the bytes
    } catch (const IoError& error) {
      if (!damage) damage = error;
    }
  }
  SKEIN_CHECK(damage.has_value(), "a block without copies");
  throw *damage;
}

std::vector<FoundShard> settle_copies(std::vector<FoundShard> copies,
                                      const KnownCollection& collection) {
  const auto& digest = copies.front().header.digest;
  if (std::ranges::all_of(copies, [&](const auto& c) { return c.header.digest == digest; })) {
    return copies;
  }
  std::vector<FoundShard> whole;
  for (const auto& copy : copies) {
    try {
      read_shard(copy.path, collection);
      whole.push_back(copy);
    } catch (const SystemFailure&) {
      throw;
    } catch (const IoError& error) {
      log_warning("{}; there is another copy of its block", error.what());
    }
  }
  for (const auto& copy : whole) {
    if (copy.header.digest == whole.front().header.digest) continue;
    const auto range = samples_of_block(collection.facts, copy.header.block);
    throw UserError(fmt::format(
        "{} and {} hold different rows of block {} (samples {} to {}): remove the one that is "
        "wrong, or both, and collect again",
        whole.front().path.string(), copy.path.string(), copy.header.block, range.first,
        range.last - 1));
  }
  return whole.empty() ? copies : whole;
}

void write_shard(const fs::path& folder, const KnownCollection& collection, const BlockRows& rows) {
  const auto& facts = collection.facts;
  const auto range = samples_of_block(facts, rows.block);
  SKEIN_CHECK(cover(range, rows.samples, rows.skipped), fmt::format("block {}", rows.block));
  SKEIN_CHECK(rows.rows.size() == rows.samples.size() * static_cast<size_t>(facts.dimension()),
              fmt::format("block {}: {} values", rows.block, rows.rows.size()));
  SKEIN_CHECK(std::ranges::all_of(rows.rows, [](float value) { return std::isfinite(value); }),
              fmt::format("block {} has rows that are not finite", rows.block));
  const auto bytes = rounded_rows(facts, rows);
  const auto samples = std::as_bytes(rows.samples);
  ShardHeader header{.block = rows.block,
                     .num_rows = static_cast<int64_t>(rows.samples.size()),
                     .skipped = {rows.skipped.begin(), rows.skipped.end()}};
  header.digest = digest_of(header, collection, samples, bytes);
  std::vector<checkpoint::PlacedTensor> tensors;
  const auto text = header_text(header, collection, tensors);

  make_directories(folder);
  NewFile file(folder / shard_name(rows.block));
  file.file().write_at(0, std::as_bytes(std::span(text)));
  for (const auto& tensor : tensors) {
    file.file().write_at(text.size() + tensor.begin, tensor.name == "rows" ? bytes : samples);
  }
  file.commit();
}

uint64_t most_shard_bytes(const CollectionFacts& facts, int64_t num_samples) {
  const auto row = static_cast<uint64_t>(facts.dimension()) * dtype_bytes(facts.output_dtype);
  const uint64_t sample = sizeof(int64_t) + row;
  return kHeaderRoom + static_cast<uint64_t>(num_samples) * std::max(sample, kSkippedTextBytes);
}

}  // namespace skein::gradient_features
