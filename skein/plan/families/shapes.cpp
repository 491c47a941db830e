// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/families/shapes.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <utility>

#include "skein/core/error.h"

namespace skein::plan {

int64_t ParameterShape::numel() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t ParameterShape::memory_numel() const {
  return padded_rows > 0 ? numel() / shape[0] * padded_rows : numel();
}

int64_t Shapes::numel() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.numel();
  return sum;
}

int64_t Shapes::trainable_numel() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.trainable ? parameter.numel() : 0;
  return sum;
}

int64_t Shapes::unit_numel(int unit) const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.unit == unit ? parameter.numel() : 0;
  return sum;
}

ShapeLister::ShapeLister(bool tied_head, ModuleKind linear)
    : tied_head_(tied_head), linear_(linear) {
  begin_unit(tied_head ? "root" : "embedding", /*root=*/true);
}

void ShapeLister::begin_block() {
  begin_unit(fmt::format("block {}", num_blocks_++), /*root=*/false);
}

void ShapeLister::end_blocks() {
  if (tied_head_) {
    unit_ = 0;
  } else {
    begin_unit("head", /*root=*/true);
  }
}

void ShapeLister::add(const std::string& name, std::vector<int64_t> shape) {
  const bool matrix = shape.size() > 1;
  shapes_.parameters.push_back({.name = name,
                                .shape = std::move(shape),
                                .unit = unit_,
                                .decay = matrix,
                                .kind = matrix ? ModuleKind::kEmbedding : ModuleKind::kVector});
}

void ShapeLister::add_embedding(const std::string& name, int64_t vocabulary, int64_t channels) {
  add(name, {vocabulary, channels});
  if (tied_head_) shapes_.parameters.back().padded_rows = padded_head_rows(vocabulary);
}

void ShapeLister::add_head(const std::string& name, int64_t vocabulary, int64_t channels) {
  ParameterShape head{.name = name,
                      .shape = {vocabulary, channels},
                      .unit = unit_,
                      .padded_rows = padded_head_rows(vocabulary),
                      .kind = ModuleKind::kHead};
  if (tied_head_) {
    shapes_.tied_head = std::move(head);
  } else {
    shapes_.parameters.push_back(std::move(head));
  }
}

void ShapeLister::add_score(const std::string& name, int64_t channels) {
  SKEIN_CHECK(!tied_head_, "no embedding scores a text");
  shapes_.parameters.push_back(
      {.name = name, .shape = {1, channels}, .unit = unit_, .kind = ModuleKind::kVector});
}

void ShapeLister::add_layer(const std::string& name, std::vector<int64_t> weight, int64_t bias) {
  add(name + ".weight", std::move(weight));
  auto& added = shapes_.parameters.back();
  if (added.kind == ModuleKind::kEmbedding) added.kind = linear_;
  if (bias > 0) add(name + ".bias", {bias});
}

void ShapeLister::begin_unit(std::string name, bool root) {
  shapes_.units.push_back({std::move(name), root});
  unit_ = static_cast<int>(shapes_.units.size()) - 1;
}

}  // namespace skein::plan
