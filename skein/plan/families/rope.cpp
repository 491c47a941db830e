// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>

namespace skein::plan {
namespace {

constexpr std::pair<const char*, RopeType> kTypes[] = {
    {"default", RopeType::kDefault},   {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},   {"yarn", RopeType::kYarn},
    {"longrope", RopeType::kLongRope}, {"llama3", RopeType::kLlama3},
};

RopeType type_of(const ConfigReader& object, const RopeContext& context) {
  std::string name = "default";
  object.read("type", name);  // the older word
  object.read("rope_type", name);
  if (context.always_long && (name == "su" || name == "yarn")) return RopeType::kLongRope;
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  object.fail(fmt::format(
      "rope_type {} is not supported (default, linear, dynamic, yarn, longrope, llama3)", name));
}

void read_factor(const ConfigReader& object, Rope& rope) {
  if (!object.has("factor")) object.fail("this rope_type needs a factor");
  object.read_positive("factor", rope.factor);
}

void read_llama3(const ConfigReader& object, Rope& rope) {
  read_factor(object, rope);
  object.read_positive("low_freq_factor", rope.low_frequency);
  object.read_positive("high_freq_factor", rope.high_frequency);
  if (rope.high_frequency <= rope.low_frequency) {
    object.fail("high_freq_factor must be larger than low_freq_factor");
  }
}

double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

// Pairs before the ramp turn as ever, pairs behind it `factor` times slower.
void set_ramp(const ConfigReader& object, Rope& rope) {
  double fast = 32, slow = 1;  // turns within the original positions
  object.read_positive("beta_fast", fast);
  object.read_positive("beta_slow", slow);
  bool whole = true;
  object.read("truncate", whole);
  const auto channels = static_cast<double>(rope.channels);
  const auto pair_of = [&](double turns) {
    const auto positions = static_cast<double>(rope.original_positions);
    return channels * std::log(positions / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  const double begin = pair_of(fast), end = pair_of(slow);
  rope.ramp_begin = std::max(whole ? std::floor(begin) : begin, 0.0);
  rope.ramp_end = std::min(whole ? std::ceil(end) : end, channels - 1);
  if (rope.ramp_begin == rope.ramp_end) rope.ramp_end += 0.001;
}

void read_yarn(const ConfigReader& object, const RopeContext& context, Rope& rope) {
  rope.factor =
      static_cast<double>(context.positions) / static_cast<double>(rope.original_positions);
  object.read_positive("factor", rope.factor);
  double scale = 0, scale_of_all = 0;
  object.read("mscale", scale);
  object.read("mscale_all_dim", scale_of_all);
  rope.magnitude = yarn_magnitude(rope.factor, 1);
  if (scale != 0 && scale_of_all != 0) {
    rope.magnitude = yarn_magnitude(rope.factor, scale) / yarn_magnitude(rope.factor, scale_of_all);
  }
  object.read_positive("attention_factor", rope.magnitude);
  set_ramp(object, rope);
}

void read_long_rope(const ConfigReader& object, const RopeContext& context, Rope& rope) {
  const auto original = static_cast<double>(rope.original_positions);
  double factor = static_cast<double>(context.positions) / original;
  object.read_positive("factor", factor);
  if (factor > 1) rope.magnitude = std::sqrt(1 + std::log(factor) / std::log(original));
  object.read_positive("attention_factor", rope.magnitude);
  object.read_positive("short_factor", rope.short_factors);
  object.read_positive("long_factor", rope.long_factors);
  const auto pairs = static_cast<size_t>(rope.channels / 2);
  if (rope.short_factors.size() != pairs || rope.long_factors.size() != pairs) {
    object.fail(fmt::format("short_factor and long_factor need {} numbers each", pairs));
  }
}

void read_channels(const ConfigReader& object, const RopeContext& context, Rope& rope) {
  double share = context.share;
  object.read_positive("partial_rotary_factor", share);
  if (share != 1 && (!context.partial || share > 1)) {
    object.fail("partial_rotary_factor other than 1 is not supported");
  }
  rope.channels = static_cast<int64_t>(static_cast<double>(context.head_dim) * share);
  if (rope.channels < 2 || rope.channels % 2 != 0) {
    object.fail(fmt::format("{} channels of a head cannot turn in pairs", rope.channels));
  }
}

}  // namespace

int64_t Rope::stretched_positions() const {
  // Llama 3's files count positions after stretching, which is by less than the factor.
  if (factor <= 1 || type == RopeType::kLlama3) return 0;
  return static_cast<int64_t>(std::min(static_cast<double>(original_positions) * factor, 0x1p53));
}

Rope read_rope_object(const ConfigReader& object, const RopeContext& context) {
  Rope rope{.type = type_of(object, context), .theta = context.theta};
  object.read_positive("rope_theta", rope.theta);
  read_channels(object, context, rope);
  rope.original_positions = context.positions;
  if (rope.type != RopeType::kDynamic) {
    object.read("original_max_position_embeddings", rope.original_positions);
    if (context.original_positions > 0) rope.original_positions = context.original_positions;
  }
  switch (rope.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
    case RopeType::kDynamic:
      read_factor(object, rope);
      break;
    case RopeType::kYarn:
      read_yarn(object, context, rope);
      break;
    case RopeType::kLongRope:
      read_long_rope(object, context, rope);
      break;
    case RopeType::kLlama3:
      read_llama3(object, rope);
      break;
  }
  return rope;
}

Rope read_rope(const ConfigReader& reader, const RopeContext& context) {
  auto known = context;
  reader.read_positive("rope_theta", known.theta);
  reader.read_positive("partial_rotary_factor", known.share);
  for (const auto* key : {"rope_scaling", "rope_parameters"}) {
    const auto object = reader.object(key);
    if (!object) continue;
    auto rope = read_rope_object(*object, known);
    // Beside the object, where run_model.h writes it: transformers knows no such key inside.
    if (rope.type == RopeType::kLinear) {
      reader.read("original_max_position_embeddings", rope.original_positions);
    }
    return rope;
  }
  Rope rope{.theta = known.theta, .original_positions = known.positions};
  read_channels(reader, known, rope);
  return rope;
}

}  // namespace skein::plan
