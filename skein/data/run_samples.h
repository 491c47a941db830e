// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a run train on, and what does it evaluate?

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/data/packs.h"
#include "skein/data/sample_plan.h"
#include "skein/data/sample_set.h"
#include "skein/data/sample_source.h"
#include "skein/data/token_array.h"
#include "skein/text/text_codec.h"

namespace skein::data {

// Some of a source's samples.
struct ChosenSamples {
  std::shared_ptr<const SampleSource> source;
  SampleSet set;  // of source->count()
  // The same samples, each with the answer to another's prompt (FeedbackSource); null: none.
  std::shared_ptr<const SampleSource> mismatched = {};
};

struct RunSamples {
  ChosenSamples train;
  std::optional<ChosenSamples> eval;  // absent: the run does not evaluate
  // Of train.set, in the order in which they are used; absent: each sample alone, in the epoch's
  // permutation.
  std::shared_ptr<const Packs> packs;
  // Whether the samples of a micro-batch lie behind each other as a run of documents
  // (HostBatch::document_ends); else they are its rows, padded to the longest.
  bool are_runs = false;
  // Of a run: what the documents of a sample begin with is computed once (runs/run_writer.h).
  bool share_prompts = false;
  // Tells one training set from another: 32 hexadecimal digits of all that the samples and their
  // order follow from, besides the seed and the global batch.
  std::string digest;
};

struct RunSamplesOptions {
  config::DataConfig data;
  config::ModelConfig model;  // for the tokenizer
  bool evaluates = false;
  uint64_t seed = 0;  // chooses the samples that are held out
  int64_t vocab_size = 0;
};

// Throw UserError for ids that a vocabulary of so many does not have: those that the encoder of a
// text can give, those that token files hold.
void require_vocabulary(const text::TextCodec& codec, int64_t vocab_size);
void require_vocabulary(const std::vector<fs::path>& files, const TokenArray& tokens,
                        uint64_t largest_token, int64_t vocab_size);

// Blocks of the configured data, which is prepared if nobody did (see prepare.h). Throws UserError
// or IoError when it cannot be trained on: no data, broken lines, a token id that the model's
// vocabulary does not have.
RunSamples open_blocks(const RunSamplesOptions& options);

// The steps of its training.
SamplePlan plan_of(const RunSamples& samples, const SampleOrder& order);

}  // namespace skein::data
