// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/projection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "skein/core/hash.h"
#include "skein/core/random.h"

namespace skein::gradient_features {
namespace {

// Keeps these streams apart from others of the same seed: "gradproj" as eight ASCII bytes.
constexpr uint64_t kTag = 0x67726164'70726f6a;
constexpr int kVersion = 1;  // of the scheme, in the digest

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

std::string projection_digest(ProjectionKind kind, uint64_t seed,
                              const std::vector<ProjectedParameter>& parameters) {
  auto text = fmt::format("skein projection {}\nkind {}\nseed {}\n", kVersion, word_of(kind), seed);
  for (const auto& [name, shape] : parameters) {
    text += fmt::format("{} [{}]\n", name, fmt::join(shape, ","));
  }
  return digest(text);
}

}  // namespace skein::gradient_features
