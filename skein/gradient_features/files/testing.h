// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: small collections whose every value is known.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "skein/core/file.h"
#include "skein/core/hash.h"
#include "skein/gradient_features/files/collection.h"

namespace skein::gradient_features {

inline CollectionFacts small_facts() {
  return {.gradient_type = GradientType::kSgd,
          .dimensions = {3, 5},
          .projection_digest = digest("projection"),
          .model_digest = digest("model"),
          .data_digest = digest("data"),
          .data_files = {{1000, digest("file")}},
          .num_samples = 11,
          .samples_per_block = 4,
          .batch_tokens = 64,
          .max_length = 128,
          .parameters = {"a.weight", "b \"quoted\" ü"}};
}

// Exact in float16 too.
inline float known_value(int64_t sample, int64_t column, int salt = 0) {
  return static_cast<float>((sample * 37 + column * 11 + salt * 101) % 97 - 48) / 8;
}

struct KnownBlock {
  std::vector<int64_t> samples;
  std::vector<float> rows;
  std::vector<SkippedSample> skipped;
};

inline KnownBlock known_block(const CollectionFacts& facts, int64_t block,
                              const std::vector<SkippedSample>& skipped = {}, int salt = 0) {
  KnownBlock out;
  const auto range = samples_of_block(facts, block);
  for (int64_t sample = range.first; sample < range.last; ++sample) {
    const auto found = std::ranges::find(skipped, sample, &SkippedSample::sample);
    if (found != skipped.end()) {
      out.skipped.push_back(*found);
      continue;
    }
    out.samples.push_back(sample);
    for (int64_t column = 0; column < facts.dimension(); ++column) {
      out.rows.push_back(known_value(sample, column, salt));
    }
  }
  return out;
}

inline void write_known(const fs::path& folder, const CollectionFacts& facts, int64_t block,
                        const std::vector<SkippedSample>& skipped = {}, int salt = 0) {
  const auto known = known_block(facts, block, skipped, salt);
  write_block(folder, facts, {block, known.samples, known.rows, known.skipped});
}

// All blocks, dealt over so many ranks.
inline void collect_known(const fs::path& output, const CollectionFacts& facts, int64_t ranks = 1,
                          const std::vector<SkippedSample>& skipped = {}, int salt = 0) {
  open_collection(output, facts);
  for (int64_t block = 0; block < facts.num_blocks(); ++block) {
    write_known(folder_of_rank(output, block % ranks, ranks), facts, block, skipped, salt);
  }
}

// One byte of a file becomes another.
inline void flip(const fs::path& path, uint64_t place, int bit = 0) {
  const char byte = static_cast<char>(read_file(path).at(place) ^ (1 << bit));
  File::open_to_write(path).write_at(place, std::as_bytes(std::span(&byte, 1)));
}

}  // namespace skein::gradient_features
