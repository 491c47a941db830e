// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Completions that are replied to with messages (max_turns): what the template prints of these is
// put behind them, and the policy goes on. Nothing of it is learned.

#include <memory>
#include <span>
#include <vector>

#include "skein/data/rows/open_encoder.h"
#include "skein/rewards/scorer.h"
#include "skein/train/online/sample.h"

namespace skein::train {

struct Reply {
  size_t sample = 0;  // of the completions that were judged
  std::vector<rewards::Message> messages;
};

class Replies {
 public:
  // `sampler` must outlive it. Requires a chat template where there are turns.
  Replies(const Session& run, PolicySampler& sampler);

  int64_t max_turns() const { return max_turns_; }
  // False: this rank has been asked to stop. One that has no room for its messages and a token
  // behind them, or has not ended by itself, stays as it is: its next turn is the last one.
  // Collective. Throws UserError for messages that the template refuses.
  bool go_on(const Prompts& prompts, std::span<Sampled> samples, std::span<const Reply> replies,
             const PolicySampler::Wish& wish);

 private:
  // Of a completion that has ended: what comes behind its last token.
  std::vector<int64_t> tokens_behind(const Sampled& sample,
                                     std::span<const rewards::Message> messages) const;
  void append(Sampled& sample, std::span<const int64_t> tokens) const;

  PolicySampler& sampler_;
  int64_t max_turns_, max_tokens_, max_positions_;
  data::RowTokens tokens_{};  // where there are turns
};

}  // namespace skein::train
