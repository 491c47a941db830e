// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One micro-batch, as models read it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "skein/tensor/host_batch.h"

namespace skein::tensor {

// N documents behind each other in one row of T tokens, none of which sees another.
struct DocumentRun {
  std::vector<int32_t> ends;  // on the host: one behind each document's last token
  int64_t longest = 0;        // tokens
  at::Tensor bounds;          // (N + 1) int32: 0, then the ends
  at::Tensor positions;       // (T) int64, from 0 in every document
  at::Tensor documents;       // (T) int64: the document of every token
  at::Tensor places;          // (n) int64: the tokens that have a target
};

// Answers that people have judged (see HostAnswers): A of them, P pairs. What is told of a token
// lies in the order of Batch::targets as one row, or of DocumentRun::places.
struct Answers {
  at::Tensor ends;         // (A) int64: the last token of each, in the batch as one row
  at::Tensor targets;      // (A, longest) int64: the places of its targets; one behind all: none
  at::Tensor num_targets;  // (A) int64
  at::Tensor margins{};    // (P) float64; undefined: no pair has one
  at::Tensor desirable{};  // (A) bool; undefined: they are pairs
  std::vector<int64_t> samples{};

  int64_t count() const { return ends.size(0); }
};

// Completions that the policy has sampled (see HostEpisodes): A of them, with n targets. What is
// told of a target, (n) each, lies in the order of the targets in the batch as one row, which is
// that of DocumentRun::places.
struct Episodes {
  at::Tensor places;       // (n) int64: the tokens that have a target, in the batch as one row
  at::Tensor owners;       // (n) int64: the completion that a target belongs to
  at::Tensor targets;      // (A, longest) int64: which of the n are its own; n: none
  at::Tensor num_targets;  // (A) int64
  at::Tensor weights;      // (A) float64: 0 masks a completion out, else 1
  std::vector<int64_t> samples{};
  // (n) float64; undefined: not told, or not yet.
  at::Tensor advantages{}, old_log_probs{}, reference_log_probs{}, rollout_log_probs{};
  at::Tensor returns{}, old_values{};

  int64_t count() const { return num_targets.size(0); }
};

// B rows, T tokens. Every row is one document, or there is one row that is a run of them.
struct Batch {
  at::Tensor tokens;     // (B, T) int64
  at::Tensor targets;    // (B, T) int64: the token that position t predicts, kIgnore where none
  at::Tensor documents;  // (B) or (N) int64: tells documents apart over all epochs; keys dropout
  int64_t num_targets = 0;
  std::shared_ptr<const DocumentRun> run{};  // null: rows are documents
  at::Tensor row_lengths{};  // (B) int64: tokens before padding; undefined: all rows are full
  std::shared_ptr<const Answers> answers{};    // null: nobody has judged the documents
  std::shared_ptr<const Episodes> episodes{};  // null: the policy has not sampled them
};

Batch to_device(const Batch& batch, at::Device device);
Batch to_device(const HostBatch& batch, at::Device device);

// The same batch, of whose completions more is known: a copy of its episodes with further numbers.
Batch with_episodes(const Batch& batch, Episodes episodes);
// What a batch of completions adds to its step.
Counts episode_counts(const HostBatch& batch);

// What random draws of a step are keyed by, and how a pass runs.
struct StepKey {
  uint64_t seed = 0;
  int64_t step = 0;
  bool training = true;  // off: no dropout
  bool adapters = true;  // off: the base alone
};

}  // namespace skein::tensor
