// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/merged_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/convert/float_values.h"
#include "skein/core/hash.h"
#include "skein/gradient_features/files/shard.h"

namespace skein::gradient_features {
namespace {

constexpr const char* kKind = "skein gradients";
constexpr const char* kVersion = "1";

constexpr size_t kMostSamplesKept = 8192;  // each few bytes written hold up many

struct Placed {
  std::string header;
  std::vector<checkpoint::PlacedTensor> tensors;
};

// What the rows are, and which: the same rows give the same text, however they were collected.
Placed place(const RowReader& reader) {
  const auto& facts = reader.facts();
  const auto skipped = skipped_text(reader.skipped());
  const auto lines = fmt::format("{} {}\n{}\n{}\n{}\n", kKind, kVersion, facts_digest(facts),
                                 skipped, fmt::join(reader.block_digests(), "\n"));
  const auto rows = static_cast<uint64_t>(reader.num_rows());
  Placed placed;
  placed.header = checkpoint::build_header(
      {{"rows", facts.output_dtype, {rows, static_cast<uint64_t>(facts.dimension())}},
       {"samples", DType::kI64, {rows}}},
      placed.tensors,
      {{"format", "pt"},
       {"kind", kKind},
       {"version", kVersion},
       {"facts", facts_text(facts)},
       {"skipped", skipped},
       {"digest", digest(lines)}});
  return placed;
}

}  // namespace

MergedFile::MergedFile(const fs::path& path, const RowReader& reader)
    : dtype_(reader.facts().output_dtype), file_(path) {
  const auto [header, tensors] = place(reader);
  uint64_t rows_begin = 0;
  for (const auto& tensor : tensors) {
    (tensor.name == "rows" ? rows_begin : next_sample_) = header.size() + tensor.begin;
  }
  file_.file().write_at(0, std::as_bytes(std::span(header)));
  rows_.emplace(file_.file(), rows_begin);
}

void MergedFile::append(const ReadBlock& block) {
  samples_.insert(samples_.end(), block.samples.begin(), block.samples.end());
  if (samples_.size() >= kMostSamplesKept) write_samples();
  auto rows = std::as_bytes(block.rows);
  if (dtype_ != DType::kF32) {  // exact: they were read from the same type
    rounded_.resize(block.rows.size() * dtype_bytes(dtype_));
    convert::from_floats(block.rows, dtype_, rounded_);
    rows = rounded_;
  }
  rows_->append(rows);
}

void MergedFile::write_samples() {
  const auto samples = std::as_bytes(std::span(samples_));
  rows_->write_elsewhere(next_sample_, samples);
  next_sample_ += samples.size();
  samples_.clear();
}

void MergedFile::commit() {
  write_samples();
  rows_->finish();
  file_.commit();
}

uint64_t merged_file_bytes(const RowReader& reader) {
  const auto placed = place(reader);
  uint64_t end = 0;
  for (const auto& tensor : placed.tensors) end = std::max(end, tensor.end);
  return placed.header.size() + end;
}

}  // namespace skein::gradient_features
