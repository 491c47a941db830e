// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The policy answers prompts, from the very weights that it trains.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/model/model.h"
#include "skein/parallel/sharded.h"
#include "skein/rollout/generate.h"
#include "skein/text/text_codec.h"
#include "skein/train/online/prompts.h"
#include "skein/train/session.h"

namespace skein::train {

// One completion.
struct Sampled {
  int64_t number = 0;               // in its step (deal.h)
  int64_t prompt = 0;               // in Prompts
  int64_t generation = 0;           // of that prompt
  std::vector<int64_t> tokens{};    // the one that ends it too
  std::vector<uint8_t> foreign{};   // of each: 1 for one that it was replied to with; empty: none
  std::vector<double> log_probs{};  // what the sampler says of the others, its own
  bool finished = false;            // by itself, not for its length
  std::string text{};               // without what ends it
  int turn = 0;                     // how often it was replied to

  int64_t num_own() const { return std::ssize(tokens) - std::ranges::count(foreign, 1); }
};

// What all of a run's sampling has in common.
class PolicySampler {
 public:
  // `run` and `codec` must outlive it.
  PolicySampler(Session& run, const text::TextCodec& codec);

  struct Wish {
    int64_t step = 0;         // keys the draws
    int64_t generations = 1;  // of each prompt
    bool log_probs = false;
    std::string what;  // for those who wait: "sampling"
  };
  // The completions with these numbers: prompt · generations + generation. Nothing when this rank
  // has been asked to stop meanwhile: the ranks are to agree on it. Collective.
  std::optional<std::vector<Sampled>> sample(const Prompts& prompts,
                                             std::span<const int64_t> numbers, const Wish& wish);
  // These go on behind the tokens that they have; false: this rank has been asked to stop, as
  // above. Collective.
  bool write(const Prompts& prompts, std::span<Sampled* const> samples, const Wish& wish);

 private:
  rollout::GenerateOptions options(const Wish& wish) const;
  bool ends(int64_t token) const;
  // Of zero3: may all weights be whole on every rank while answers are written? Collective.
  bool may_gather() const;

  Session& run_;
  const text::TextCodec& codec_;
  std::vector<int64_t> stop_tokens_;
  rollout::Generator generator_;
};

}  // namespace skein::train
