// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are the rows of a collection, and how do they differ from those of another?
//
// The text is `collection.json` of docs/gradient_format.md. A collection's digest is in each of its
// shards: rows that were made from anything else are never taken for its own.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/dtype.h"
#include "skein/gradient_features/files/data_files.h"
#include "skein/gradient_features/files/projection.h"

namespace skein::gradient_features {

// Files hold the words, not these numbers.
enum class InfoType { kGrads, kReps, kLoss };
enum class GradientType { kAdam, kSgd, kSign };
enum class AdamForm { kLess, kStandard };

std::string_view word_of(InfoType type);      // "grads", "reps", "loss"
std::string_view word_of(GradientType type);  // "adam", "sgd", "sign"
std::string_view word_of(AdamForm form);      // "less", "standard"
std::optional<InfoType> info_type(std::string_view word);
std::optional<GradientType> gradient_type(std::string_view word);
std::optional<AdamForm> adam_form(std::string_view word);

inline constexpr int64_t kMaxDimension = int64_t{1} << 28;
// Rows of a block as floats: a reader holds a few blocks. A block of one sample may be larger.
inline constexpr int64_t kMaxBlockBytes = int64_t{32} << 20;
inline constexpr int64_t kMaxSamplesPerBlock = 65536;

// A sample's index is the number of its row in the data's files, from 0 and in their order; blank
// lines do not count, and rows that cannot be used keep their number.
struct CollectionFacts {
  InfoType info_type = InfoType::kGrads;
  GradientType gradient_type = GradientType::kSgd;
  AdamForm adam_form = AdamForm::kLess;  // without effect unless gradient_type is kAdam
  ProjectionKind projection = ProjectionKind::kDense;
  uint64_t seed = 0;  // of the projection
  // Rising, at least one. Rows have the last; of a dense projection the others are their
  // beginnings, of all else there is one.
  std::vector<int64_t> dimensions;
  DType output_dtype = DType::kF32;  // or kF16
  std::string projection_digest;     // projection_digest()
  std::string model_digest;          // of all weights that the rows depend on
  std::string moments_digest;        // of the moments, where gradient_type is kAdam; else empty
  DType dtype = DType::kF32;         // of the computation
  std::string data_digest;           // of the samples: tokens and what of them is supervised
  std::vector<DataFile> data_files;  // those that hold the samples, in order; all of their rows
  int64_t num_samples = 0;           // also those that are skipped
  int64_t max_samples = 0;           // 0: all of the data's; else num_samples are its first
  int64_t samples_per_block = 0;
  int64_t batch_tokens = 0;  // that go through the model together: rows round otherwise in others
  int64_t max_length = 0;
  std::string excess_length = "truncate";  // rows that are longer; or "drop", "error"
  std::vector<std::string> parameters;     // names, in the order of the projection

  int64_t dimension() const { return dimensions.back(); }
  int64_t num_blocks() const { return (num_samples + samples_per_block - 1) / samples_per_block; }
};

// How many samples a block may have, so that kMaxBlockBytes hold its rows; at least 1.
int64_t most_samples_per_block(int64_t dimension);

// Throws UserError for values that no collection can have: dimension 0, dimensions that a
// projection other than dense cannot offer, no samples, blocks that are too large, ….
void check_facts(const CollectionFacts& facts);

// Throws UserError where signs of so many elements add up to more than float16 holds: a column is a
// sum of as many ±1, so that of 10^8 some are beyond 60,000.
void check_signs_fit(const CollectionFacts& facts, int64_t num_elements);

// One text per collection. parse_facts() throws IoError for any other text, and for facts that
// check_facts() refuses; `file` begins messages.
std::string facts_text(const CollectionFacts& facts);
CollectionFacts parse_facts(std::string_view text, std::string_view file);

struct FactEntry {
  std::string key;
  std::string value;  // as JSON
};
// In the order of the text.
std::vector<FactEntry> fact_entries(const CollectionFacts& facts);

// Of the text: 32 hexadecimal digits.
std::string facts_digest(const CollectionFacts& facts);

// What it means that a digest or a list of these facts differs, in words, with what is known of
// both: "the files of rows are others, 37 rows in 1 file against 20 rows in 1 file". Empty: the
// key's values speak for themselves.
std::string difference_in_words(std::string_view key, const CollectionFacts& one,
                                const CollectionFacts& other);

// "gradient_type is adam there and sgd now": the first key that differs, with both values, or
// difference_in_words(). None: equal.
std::optional<std::string> first_difference(const CollectionFacts& there,
                                            const CollectionFacts& now);

}  // namespace skein::gradient_features
