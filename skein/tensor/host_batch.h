// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One micro-batch in plain memory, as loaders make it. Free of torch; batch.h turns it into
// tensors.

#include <cstdint>
#include <memory>
#include <vector>

namespace skein::tensor {

constexpr int64_t kIgnore = -100;  // the target of a position that predicts nothing

// What a batch, a step or an evaluation holds: losses are divided by one of these. Of a step, over
// all its micro-batches on all ranks.
struct Counts {
  int64_t targets = 0;         // of completions: those of the ones that are not masked out
  int64_t samples = 0;         // of completions: also those that are
  int64_t chosen_targets = 0;  // of pairs: those of the answers that were preferred
  int64_t desirable = 0;       // of answers that were judged alone: the good ones

  Counts& operator+=(const Counts& other) {
    targets += other.targets;
    samples += other.samples;
    chosen_targets += other.chosen_targets;
    desirable += other.desirable;
    return *this;
  }
};

// Answers that people have judged, of a batch of documents: pairs of a chosen and a rejected one,
// or answers that were judged alone.
struct HostAnswers {
  std::vector<int64_t> documents{};  // of each answer; a pair's rejected one is next to its chosen
  bool alone = false;                // each is judged by itself; else they are pairs
  std::vector<double> margins{};     // of each pair: by how much it is better; empty: none has one
  std::vector<uint8_t> desirable{};  // of each answer that was judged alone; empty: not told
  std::vector<int64_t> samples{};    // the number of each pair, or of each answer alone
};

// Completions that the policy has sampled, each behind its prompt in a document of its own. The
// targets of the batch are their tokens and nothing else. Numbers of targets lie in the order of
// the targets in the batch as one row; they may also be told later (tensor::Episodes).
struct HostEpisodes {
  std::vector<int64_t> documents{};  // of each completion
  std::vector<int64_t> samples{};    // the number of each
  // Of each: 1, or 0 for one that is masked out, of which no target counts. Empty: all count.
  std::vector<double> weights{};
  // Of each target; empty: not told, or not yet.
  std::vector<double> advantages{};
  std::vector<double> old_log_probs{};          // the policy's before the first update
  std::vector<double> reference_log_probs{};    // the reference's
  std::vector<double> rollout_log_probs{};      // the sampler's own
  std::vector<double> returns{}, old_values{};  // of PPO's critic
};

struct HostBatch {
  int64_t rows = 0;
  int64_t length = 0;              // of every row
  std::vector<int64_t> tokens;     // rows x length
  std::vector<int64_t> targets;    // rows x length: what each position predicts, or kIgnore
  std::vector<int64_t> documents;  // one for each row, or for each document: keys dropout
  int64_t num_targets = 0;         // that are not kIgnore
  // Where each document of a run ends (exclusive): there is one row then, of documents behind each
  // other that do not see each other. Empty: every row is one document.
  std::vector<int32_t> document_ends{};
  // Of each document of a run, the one that it continues, as an answer continues its prompt: it
  // sees that one's tokens before its own, and its positions go on behind them. -1: none. Answers
  // stand right behind their prompt, which continues none itself. Empty: no document does.
  std::vector<int32_t> continues{};
  // Tokens of each row before its padding. Empty: all rows are full.
  std::vector<int64_t> row_lengths{};
  // Null: nobody has judged the documents. A batch without samples has an empty one.
  std::shared_ptr<const HostAnswers> answers{};
  // Null: the policy has not sampled the documents. A batch without completions has an empty one.
  std::shared_ptr<const HostEpisodes> episodes{};
};

}  // namespace skein::tensor
