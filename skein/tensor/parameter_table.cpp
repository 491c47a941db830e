// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/parameter_table.h"

#include "skein/core/error.h"

namespace skein::tensor {

namespace {

int64_t product(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

}  // namespace

Nf4Layout PackedShape::layout() const { return {.numel = product(shape), .doubly = doubly}; }

int64_t Parameter::numel() const { return product(shape); }

std::vector<int64_t> Parameter::memory_shape() const {
  auto padded = shape;
  if (padded_rows > 0) padded[0] = padded_rows;
  return padded;
}

int64_t Parameter::memory_numel() const { return product(memory_shape()); }

int ParameterTable::add_unit(std::string name, bool root) {
  units.push_back({std::move(name), root});
  return static_cast<int>(units.size()) - 1;
}

void ParameterTable::add(Parameter parameter) {
  SKEIN_CHECK(parameter.slot != nullptr, parameter.name);
  SKEIN_CHECK(parameter.unit >= 0 && parameter.unit < static_cast<int>(units.size()),
              parameter.name);
  SKEIN_CHECK(find(parameter.name) == nullptr, "registered twice: " + parameter.name);
  SKEIN_CHECK(parameter.padded_rows == 0 ||
                  (!parameter.shape.empty() && parameter.padded_rows >= parameter.shape[0]),
              parameter.name);
  SKEIN_CHECK(!parameter.packed || (!parameter.trainable && parameter.dtype == at::kByte &&
                                    parameter.numel() == parameter.packed->layout().bytes()),
              parameter.name);
  parameters.push_back(std::move(parameter));
}

const Parameter* ParameterTable::find(const std::string& name) const {
  for (const auto& parameter : parameters) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

int64_t ParameterTable::num_elements() const {
  int64_t count = 0;
  for (const auto& parameter : parameters) count += product(parameter.file_shape());
  return count;
}

std::vector<int> ParameterTable::turns() const {
  if (!forward_order.empty()) return forward_order;
  std::vector<int> blocks;
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit) {
    if (!units[unit].root) blocks.push_back(unit);
  }
  return blocks;
}

}  // namespace skein::tensor
