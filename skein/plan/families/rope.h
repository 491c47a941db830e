// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How fast does rotary position embedding turn? The six types of transformers, with everything that
// can be told without tensors worked out; ops/rope.h turns.

#include <cstdint>
#include <vector>

#include "skein/plan/families/config_reader.h"

namespace skein::plan {

enum class RopeType { kDefault, kLinear, kDynamic, kYarn, kLongRope, kLlama3 };

struct Rope {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  int64_t channels = 0;  // of a head that turn, from its first; the others stay
  double factor = 1;     // by which positions are squeezed; of kDefault and kLongRope nothing
  double magnitude = 1;  // of cosines and sines: kYarn, kLongRope
  // The length before it was stretched: beyond it kDynamic turns slower, the more the longer the
  // document, and kLongRope takes its other factors. kLlama3, kYarn and kLinear know it too.
  int64_t original_positions = 0;
  double low_frequency = 1, high_frequency = 4;     // kLlama3: turns within original_positions
  double ramp_begin = 0, ramp_end = 1;              // kYarn: pairs of channels
  std::vector<double> short_factors, long_factors;  // kLongRope: of each pair of channels

  // Does it turn differently in documents of different lengths?
  bool depends_on_length() const {
    return type == RopeType::kDynamic || type == RopeType::kLongRope;
  }
  // What the factor makes of original_positions, whether config.json counts them so or not; 0: no
  // factor stretches them.
  int64_t stretched_positions() const;
  bool operator==(const Rope&) const = default;
};

// What the keys around RoPE's own say.
struct RopeContext {
  double theta = 10000;  // where no key says it
  int64_t head_dim = 0;
  int64_t positions = 0;  // max_position_embeddings
  double share = 1;       // of a head's channels that turn, where no key of the object says it
  bool partial = false;   // may that share be below 1?
  // Phi-3's key beside the object, which wins over the one inside; 0: the family has none.
  int64_t original_positions = 0;
  bool always_long = false;  // older Phi-3 files call longrope su or yarn
};

// Of rope_scaling (transformers 4), else of rope_parameters (5), else of rope_theta alone.
Rope read_rope(const ConfigReader& reader, const RopeContext& context);
// Of the keys inside such an object.
Rope read_rope_object(const ConfigReader& object, const RopeContext& context);

}  // namespace skein::plan
