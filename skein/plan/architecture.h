// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a config.json describes, as far as it can be told without tensors.
//
// Each family derives its configuration from it (gpt2.h, llama.h); what reads, plans and reports
// knows no family. The torch half, forward, is in model/.

#include <cstdint>
#include <string>

#include "skein/plan/shapes.h"

namespace skein::plan {

// The sizes that memory, FLOPs and refusals follow from.
struct Dimensions {
  int64_t layers = 0;
  int64_t channels = 0;
  int64_t query_width = 0;  // heads x channels per head
  int64_t key_width = 0;    // the same of keys, and of values
  int64_t inner = 0;        // of the MLP
  int64_t vocabulary = 0;
  int64_t positions = 0;               // the longest row that the model was made for
  bool positions_are_learned = false;  // a longer row cannot be computed
  int64_t dropping_heads = 0;          // whose attention drops weights in training: not fused
  bool gated = false;                  // the MLP has two inner projections (SwiGLU)
  bool tied_head = false;              // the head shares the embedding's weights
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  virtual Dimensions dimensions() const = 0;
  virtual Shapes shapes() const = 0;
  // What a user who trains such a model should know beforehand; empty: nothing.
  virtual std::string training_advice() const { return ""; }
};

// For training_advice(): `key` of config.json asks for dropout inside attention.
std::string attention_dropout_advice(const char* key, double probability);

}  // namespace skein::plan
