// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From the data keys of a configuration to token ids that can be mapped.
//
// Text is encoded once into a file that all ranks and all later runs of the same data share; token
// files are used where they are. A prepared file is named by a digest of the sources' content, the
// encoder and the format, so that it is never stale. Safe when several processes prepare at once:
// one works, the others wait for its result. Needs no process group and no LibTorch; a launcher
// calls prepare_run() before ranks start, and each rank's prepare() then finds the result. Throws
// Stopped when a held signal asks for a stop (core/stop_signals.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/data/cache_entry.h"
#include "skein/data/sample_set.h"
#include "skein/data/source_files.h"
#include "skein/data/token_array.h"
#include "skein/text/text_codec.h"

namespace skein::data {

struct PreparedData {
  TokenArray tokens;
  std::string digest;  // 32 hexadecimal digits: equal for equal sources and encoders
  SourceKind kind = SourceKind::kText;
  std::vector<fs::path> files;        // the sources
  fs::path prepared_file;             // empty for token files
  bool was_reused = false;            // no text had to be encoded
  std::optional<uint64_t> documents;  // absent for token files, which do not mark them
  uint64_t bad_lines = 0;             // left out
  uint64_t largest_token = 0;
};

// Throws UserError when the keys name nothing or something that is not there; IoError for broken
// lines (file:line), a broken or too small file, or a disk that is full.
PreparedData prepare(const config::DataConfig& data, const text::TextCodec& codec, Split split);

struct RunData {
  PreparedData train;
  std::optional<PreparedData> eval;  // absent: held-out blocks of `train`, or no evaluation

  std::string digest() const { return eval ? train.digest + eval->digest : train.digest; }
};
// All that a run needs. overwrite_cache is honoured here and ignored by loaders, so that ranks do
// not prepare again what their launcher has just prepared.
RunData prepare_run(const config::RunConfig& config);

// Throws IoError when a split of so many tokens has no sample.
void require_tokens(const std::vector<fs::path>& files, int64_t count, Split split);

// Whether the keys name evaluation data of their own.
bool has_eval_sources(const config::DataConfig& data);
// Percent of the training samples that are held out: validation_split_percentage; by default 5 when
// the run evaluates; 0 when there is evaluation data of its own.
double held_out_percentage(const config::DataConfig& data, bool evaluates);

// The samples of a split, limited by max_train_samples or max_eval_samples. `count` is how many the
// split's own data has or, for evaluation on held-out samples, the training data.
SampleSet samples_of(const config::DataConfig& data, int64_t count, Split split, double held_out,
                     uint64_t seed);

}  // namespace skein::data
