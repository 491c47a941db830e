// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/shapes.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <utility>

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

int64_t Shapes::unit_numel(int unit) const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.unit == unit ? parameter.numel() : 0;
  return sum;
}

ShapeLister::ShapeLister(bool tied_head) : tied_head_(tied_head) {
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
  const bool decay = shape.size() > 1;
  shapes_.parameters.push_back({name, std::move(shape), unit_, decay});
}

void ShapeLister::add_embedding(const std::string& name, int64_t vocabulary, int64_t channels) {
  add(name, {vocabulary, channels});
  if (tied_head_) shapes_.parameters.back().padded_rows = padded_head_rows(vocabulary);
}

void ShapeLister::add_head(const std::string& name, int64_t vocabulary, int64_t channels) {
  if (tied_head_) return;
  add(name, {vocabulary, channels});
  shapes_.parameters.back().padded_rows = padded_head_rows(vocabulary);
}

void ShapeLister::add_layer(const std::string& name, std::vector<int64_t> weight, int64_t bias) {
  add(name + ".weight", std::move(weight));
  if (bias > 0) add(name + ".bias", {bias});
}

void ShapeLister::begin_unit(std::string name, bool root) {
  shapes_.units.push_back({std::move(name), root});
  unit_ = static_cast<int>(shapes_.units.size()) - 1;
}

}  // namespace skein::plan
