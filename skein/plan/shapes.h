// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which parameters will a model have? The same as build(), without LibTorch: for plans.
//
// A test holds both lists equal: names, shapes, order and units.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/plan/hf_config.h"

namespace skein::plan {

// Rows that the head's weight has in memory: with a multiple of 64 matrix products on a GPU take
// their fast path, five to eight times the speed of an odd number's.
constexpr int64_t padded_head_rows(int64_t vocabulary) { return (vocabulary + 63) / 64 * 64; }

struct ParameterShape {
  std::string name;
  std::vector<int64_t> shape;  // in files
  int unit = 0;
  bool decay = true;        // weight decay applies
  int64_t padded_rows = 0;  // in memory; 0: as in files

  int64_t numel() const;
  int64_t memory_numel() const;
};

struct UnitShape {
  std::string name;
  bool root = false;  // embeddings, final norm, head
};

struct Shapes {
  std::vector<UnitShape> units;
  std::vector<ParameterShape> parameters;

  int64_t numel() const;
  int64_t unit_numel(int unit) const;
};

Shapes shapes_of(const HfConfig& config);

// What the estimates of memory need besides the parameters.
struct Dimensions {
  int64_t layers = 0;
  int64_t channels = 0;
  int64_t query_width = 0;  // heads x channels per head
  int64_t key_width = 0;    // the same of keys, and of values
  int64_t inner = 0;        // of the MLP
  int64_t vocabulary = 0;
  int64_t positions = 0;  // longest row that the model knows; 0: any
  bool gated = false;     // SwiGLU: two inner projections
};
Dimensions dimensions_of(const HfConfig& config);

}  // namespace skein::plan
