// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Whatever is accepted is what the library reads, within the limits; a walk accepts the same texts.
#include "skein/core/json.h"

#include <algorithm>

#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

constexpr JsonLimits kLimits{.bytes = 4096, .depth = 8};

int depth_of(const nlohmann::json& value) {
  int deepest = 0;
  if (!value.is_structured()) return 0;
  for (const auto& member : value) deepest = std::max(deepest, depth_of(member));
  return deepest + 1;
}

}  // namespace

void json(std::string_view bytes) {
  bool is_walked = false;
  try {
    JsonEvents nothing_kept;
    is_walked = walk_json(bytes, kLimits, nothing_kept);
  } catch (const JsonError& error) {
    require(error.byte <= bytes.size() + 1, "a place lies in the text");
  }
  try {
    const auto tree = parse_json(bytes, kLimits);
    require(is_walked && bytes.size() <= kLimits.bytes, "a walk accepts what a tree does");
    require(depth_of(tree) <= kLimits.depth, "a tree is no deeper than the limit");
    require(tree == nlohmann::json::parse(bytes), "a tree is what the library reads");
    require(parse_ordered_json(bytes, kLimits) == nlohmann::ordered_json::parse(bytes),
            "with keys in their order too");
  } catch (const JsonError&) {
  }
}

}  // namespace skein::fuzz
