// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a config.json describes, as far as it can be told without tensors.
//
// A family describes itself by a Decoder (decoder.h), or by a struct of its own (gpt2.h); what
// reads, plans and reports knows no family. The torch half, forward, is in model/.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "skein/plan/families/shapes.h"

namespace skein::plan {

// The weight of a head that scores, in every family.
inline constexpr const char* kScoreName = "score.weight";

// The sizes that memory, FLOPs and refusals follow from.
struct Dimensions {
  int64_t layers = 0;
  int64_t channels = 0;
  int64_t query_width = 0;  // heads x channels per head
  int64_t key_width = 0;    // the same of keys, and of values
  int64_t inner = 0;        // of the MLP
  int64_t vocabulary = 0;
  int64_t positions = 0;               // of config.json
  int64_t stretched_positions = 0;     // what RoPE's factor makes of those from before; 0: no more
  bool positions_are_learned = false;  // a longer row cannot be computed
  int64_t plain_positions = 0;  // beyond so many RoPE turns by the length of a whole text; 0: never
  int64_t heads = 0;            // of queries
  // Attention holds (tokens, tokens) scores in training: it drops weights, or caps scores.
  bool unfused_attention = false;
  int64_t window = 0;           // positions that a token sees in the layers that have a window
  int64_t windowed_layers = 0;  // how many have one
  bool capped_logits = false;   // the head holds one more chunk of them
  bool gated = false;           // the MLP has two inner projections (SwiGLU)
  bool tied_head = false;       // the head shares the embedding's weights
  bool scores = false;          // the head gives one number, not a vocabulary of them

  // The longest text that the model is made for.
  int64_t usable_positions() const { return std::max(positions, stretched_positions); }
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  virtual Dimensions dimensions() const = 0;
  virtual Shapes shapes() const = 0;
  // The same with a head of its own; null where there is none.
  virtual std::shared_ptr<const Architecture> untied() const { return nullptr; }
  // The same with a head that scores a text; null where there is none.
  virtual std::shared_ptr<const Architecture> scored() const { return nullptr; }
  // Why rope_scaling cannot stretch positions that are not learned, as "a FAMILY model …"; empty:
  // it can.
  virtual std::string stretch_refusal() const { return ""; }
  // Why documents of up to so many tokens cannot share the computation of what they begin with, in
  // a few words; empty: they can.
  virtual std::string sharing_refusal(int64_t /*longest*/) const {
    return "the model's family does not say that it can";
  }
  // What a user who trains such a model should know beforehand; empty: nothing.
  virtual std::string training_advice() const { return ""; }
};

// For sharing_refusal(): `key` of config.json asks for dropout.
std::string dropout_refusal(const char* key, double probability);
// For training_advice(): `key` of config.json asks for dropout inside attention.
std::string attention_dropout_advice(const char* key, double probability);

}  // namespace skein::plan
