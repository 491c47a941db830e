// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/projection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/random.h"

namespace skein::gradient_features {
namespace {

// Keeps these streams apart from others of the same seed: "gradproj" as eight ASCII bytes.
constexpr uint64_t kTag = 0x67726164'70726f6a;
constexpr int kVersion = 1;  // of the scheme, in the digest

// As square as may be: of all projections to so many columns the one with the smallest sides, which
// are what it costs.
FactorSides sides_of(int64_t height, int64_t width, int64_t columns) {
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(columns)));
  const int64_t shorter = std::min({root, height, width});
  const int64_t longer = std::min(columns / shorter, std::max(height, width));
  return height <= width ? FactorSides{shorter, longer} : FactorSides{longer, shorter};
}

}  // namespace

std::string_view word_of(ProjectionKind kind) {
  switch (kind) {
    case ProjectionKind::kDense:
      return "dense";
    case ProjectionKind::kFactorised:
      return "factorised";
    case ProjectionKind::kNone:
      break;
  }
  return "none";
}

std::optional<ProjectionKind> projection_kind(std::string_view word) {
  for (const auto kind :
       {ProjectionKind::kDense, ProjectionKind::kFactorised, ProjectionKind::kNone}) {
    if (word == word_of(kind)) return kind;
  }
  return std::nullopt;
}

uint64_t projection_stream(uint64_t seed, std::string_view parameter) {
  return random::mix(random::mix(seed, kTag), hash64(parameter));
}

uint64_t factor_stream(uint64_t seed, std::string_view parameter, Side side) {
  return random::mix(projection_stream(seed, parameter), side == Side::kLeft ? 0 : 1);
}

void choose_sides(std::vector<ProjectedParameter>& parameters, int64_t columns) {
  const auto count = std::ssize(parameters);
  if (columns < count) {
    throw UserError(
        fmt::format("--gradient_projection_dimension {} is too small: a factorised projection has "
                    "columns for each of {} parameters; give {} or more, or fewer --parameters",
                    columns, count, count));
  }
  for (auto& parameter : parameters) {
    parameter.sides = sides_of(parameter.height(), parameter.width(), columns / count);
  }
}

int64_t columns_of(const std::vector<ProjectedParameter>& parameters) {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.sides.columns();
  return sum;
}

std::string projection_digest(ProjectionKind kind, uint64_t seed,
                              const std::vector<ProjectedParameter>& parameters) {
  auto text = fmt::format("skein projection {}\nkind {}\nseed {}\n", kVersion, word_of(kind), seed);
  for (const auto& [name, shape, sides] : parameters) {
    text += fmt::format("{} [{}]", name, fmt::join(shape, ","));
    if (kind == ProjectionKind::kFactorised) {
      text += fmt::format(" {}x{}", sides.left, sides.right);
    }
    text += "\n";
  }
  return digest(text);
}

}  // namespace skein::gradient_features
