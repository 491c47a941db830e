// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// All rows of a collection become one file, and the files that LESS has.
//
//   OUTPUT/gradients.safetensors        `rows` and `samples` by sample, as they were collected
//   OUTPUT/dimD/all_unormalized.pt      for each dimension, a row for every sample: zeros for one
//   OUTPUT/dimD/all_orig.pt             that was skipped; in all_orig rows have length 1
//   OUTPUT/dimD/grads-N.pt              the same rows as all_unormalized, 160 to a file
//
// Rows are streamed: memory does not grow with the collection. Shards stay.

#include <cstdint>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/collection.h"

namespace skein::gradient_features {

inline constexpr const char* kMergedFile = "gradients.safetensors";
inline constexpr const char* kRankFile = "gradients.pt";  // of the rows of one folder
inline constexpr int64_t kSamplesPerPart = 160;           // LESS's

struct MergeOptions {
  fs::path output;
  bool parts = false;  // dimD/grads-N.pt too
};

struct MergeSummary {
  CollectionFacts facts;
  int64_t num_rows = 0;
  std::vector<SkippedSample> skipped;
  std::vector<fs::path> files;
  uint64_t bytes = 0;  // of the files
};

// Throws IoError when blocks are missing or damaged (which samples), DiskFull before anything is
// written when the files would not fit, Stopped when a signal asks for it.
MergeSummary merge_collection(const MergeOptions& options);

// At the end of a rank's collection: FOLDER/gradients.pt, the rows of this folder's shards by
// sample. Samples that were skipped have none, a rank without blocks has an empty tensor. A damaged
// shard is left out, with a warning, where OUTPUT has a whole one of its block; throws IoError
// where it has none.
void write_rank_pt(const fs::path& output, const fs::path& folder, const CollectionFacts& facts);
// Its bytes for all blocks, and those of the other ranks' files together: at most.
uint64_t rank_pt_bytes(const CollectionFacts& facts);

}  // namespace skein::gradient_features
