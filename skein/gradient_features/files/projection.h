// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which projection is it? The streams of its signs, the columns of each parameter, and a digest by
// which two are compared. All of it is docs/gradient_format.md's.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::gradient_features {

// Files hold the words, not these numbers.
enum class ProjectionKind {
  kDense,       // signs of projection_signs.h, over all parameters together
  kFactorised,  // per parameter, both sides of its gradient: another feature space
  kNone,        // rows are what was measured, as it is
};

std::string_view word_of(ProjectionKind kind);  // "dense", "factorised", "none"
std::optional<ProjectionKind> projection_kind(std::string_view word);

// The key of a parameter's signs. Part of every projection that was ever stored: never changes.
uint64_t projection_stream(uint64_t seed, std::string_view parameter);

// Of a factorised projection: the two sides of a gradient (p, q) have signs of their own.
enum class Side { kLeft, kRight };
uint64_t factor_stream(uint64_t seed, std::string_view parameter, Side side);

// What the sides (p, q) are projected to.
struct FactorSides {
  int64_t left = 0, right = 0;

  int64_t columns() const { return left * right; }
};

struct ProjectedParameter {
  std::string name;
  std::vector<int64_t> shape;
  FactorSides sides{};  // of a factorised projection

  // (p, q) of its gradient: q of a vector is 1.
  int64_t height() const { return shape.front(); }
  int64_t width() const { return shape.size() > 1 ? shape.back() : 1; }
};

// Gives all parameters, matrices and vectors, an equal share of so many columns; they have fewer
// where sides are short, and where the share is no product of two. Throws UserError for fewer
// columns than parameters.
void choose_sides(std::vector<ProjectedParameter>& parameters, int64_t columns);
int64_t columns_of(const std::vector<ProjectedParameter>& parameters);  // by their sides

// Equal for two projections exactly when they give equal rows for equal gradients, up to the number
// of columns. 32 hexadecimal digits. `parameters` in the order in which they are projected.
std::string projection_digest(ProjectionKind kind, uint64_t seed,
                              const std::vector<ProjectedParameter>& parameters);

}  // namespace skein::gradient_features
