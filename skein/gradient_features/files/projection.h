// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which projection is it? The streams of its signs, and a digest by which two are compared.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::gradient_features {

// Files hold the words, not these numbers.
enum class ProjectionKind {
  kDense,       // signs of projection_signs.h, over all parameters together
  kFactorised,  // per layer, of inputs and output gradients: another feature space
  kNone,        // rows are what was measured, as it is
};

std::string_view word_of(ProjectionKind kind);  // "dense", "factorised", "none"
std::optional<ProjectionKind> projection_kind(std::string_view word);

// The key of a parameter's signs. Part of every projection that was ever stored: never changes.
uint64_t projection_stream(uint64_t seed, std::string_view parameter);

struct ProjectedParameter {
  std::string name;
  std::vector<int64_t> shape;
};

// Equal for two projections exactly when they give equal rows for equal gradients, up to the number
// of columns. 32 hexadecimal digits. `parameters` in the order in which they are projected.
std::string projection_digest(ProjectionKind kind, uint64_t seed,
                              const std::vector<ProjectedParameter>& parameters);

}  // namespace skein::gradient_features
