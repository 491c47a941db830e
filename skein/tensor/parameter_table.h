// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which parameters does a model have, in which order, and which travel together?
//
// The table owns names (Hugging Face's), shapes, order and units; sharding, checkpoints and
// initialisation read it and know no model. A model registers every parameter once, with the
// address of the tensor that its code reads; whoever materialises the table (parallel::Sharded)
// puts a leaf there. The model must therefore stay where it was built.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace skein::tensor {

struct Init {
  enum class Kind { kZeros, kOnes, kNormal };
  Kind kind = Kind::kZeros;
  double deviation = 0;  // of kNormal
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  int unit = 0;
  Init init;
  bool trainable = true;
  bool decay = true;  // weight decay applies: matrices yes, biases and norm weights no
  at::Tensor* slot = nullptr;

  int64_t numel() const;
};

// A unit is what is gathered, run and reduced as one: usually a transformer block.
struct Unit {
  std::string name;
  // A root unit (embeddings, final norm, head) is gathered at the start of a step, stays whole
  // until its last backward has ended, and is reduced last.
  bool root = false;
};

struct ParameterTable {
  std::vector<Unit> units;  // blocks in the order of forward; root units anywhere
  std::vector<Parameter> parameters;

  int add_unit(std::string name, bool root = false);
  void add(Parameter parameter);

  const Parameter* find(const std::string& name) const;
  int64_t num_elements() const;
};

}  // namespace skein::tensor
