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

// Tokens of a run.
struct Span {
  int64_t begin = 0, end = 0;

  int64_t length() const { return end - begin; }
};

// Prompts that are computed once for all answers behind them (HostBatch::continues): P of them.
struct SharedPrompts {
  std::vector<Span> prompts, answers;       // on the host: each prompt, and its answers together
  int64_t longest_prompt = 0;               // tokens
  int64_t longest_answers = 0;              // of one prompt together
  at::Tensor prompt_tokens, answer_tokens;  // (n) int64: their places in the run
  at::Tensor prompt_bounds, answer_bounds;  // (P + 1) int32, among those

  bool any() const { return !prompts.empty(); }
};

// N documents behind each other in one row of T tokens, none of which sees another but the one that
// it continues.
struct DocumentRun {
  std::vector<int32_t> ends;       // on the host: one behind each document's last token
  std::vector<int32_t> continues;  // on the host, as HostBatch
  int64_t longest = 0;             // tokens, with those of the document that is continued
  int64_t longest_own = 0;         // without
  at::Tensor bounds;               // (N + 1) int32: 0, then the ends
  at::Tensor positions;            // (T) int64, from 0 in every document, or behind its prompt's
  at::Tensor documents;            // (T) int64: the document of every token
  at::Tensor places;               // (n) int64: the tokens that have a target
  SharedPrompts shared{};

  Span span(size_t document) const {
    return {document == 0 ? 0 : ends[document - 1], ends[document]};
  }
  // The tokens that it continues; empty: none.
  Span prompt_of(size_t document) const {
    if (continues.empty() || continues[document] < 0) return {};
    return span(static_cast<size_t>(continues[document]));
  }
};

// Answers that people have judged (see HostAnswers): A of them, P pairs. What is told of a token
// lies in the order of Batch::targets as one row, or of DocumentRun::places.
struct Answers {
  at::Tensor ends;         // (A) int64: the last token of each, in the batch as one row
  at::Tensor targets;      // (A, longest) int64: the places of its targets; one behind all: none
  at::Tensor num_targets;  // (A) int64
  at::Tensor margins{};    // (P) float64; undefined: no pair has one
  at::Tensor desirable{};  // (A) bool; undefined: they are pairs, or nobody told
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
