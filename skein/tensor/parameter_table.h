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
#include <optional>
#include <string>
#include <vector>

#include "skein/core/nf4_layout.h"

namespace skein::tensor {

struct Init {
  enum class Kind { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kZeros;
  double deviation = 0;  // of kNormal; of kUniform, which is even around 0, the bound
};

// A frozen matrix that memory holds in 4 bits.
struct PackedShape {
  std::vector<int64_t> shape;  // in files
  bool doubly = true;          // double_quantization

  Nf4Layout layout() const;
};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;  // in files
  // In memory the first dimension may be longer, for the sake of matrix products: at the end there
  // are rows of zeros, whose gradient is zero and which reach no file. 0: it is not.
  int64_t padded_rows = 0;
  at::ScalarType dtype = at::kFloat;
  int unit = 0;
  Init init;
  bool trainable = true;
  bool decay = true;  // weight decay applies: matrices yes, biases and norm weights no
  double rate = 1;    // its learning rate is this times the step's
  // It is in 4 bits: `shape` (one dimension) and `dtype` are those of its bytes.
  std::optional<PackedShape> packed{};
  at::Tensor* slot = nullptr;

  int64_t numel() const;
  const std::vector<int64_t>& file_shape() const { return packed ? packed->shape : shape; }
  std::vector<int64_t> memory_shape() const;  // of the leaf
  int64_t memory_numel() const;
};

// A unit is what is gathered, run and reduced as one: usually a transformer block.
struct Unit {
  std::string name;
  // A root unit (embeddings, final norm, head) is gathered at the start of a step and stays whole
  // until its end. One behind all blocks (an untied head) is reduced before them, others last.
  bool root = false;
};

struct ParameterTable {
  // Blocks in the order of forward. Root units that forward uses before or between blocks stand
  // before the last block.
  std::vector<Unit> units;
  std::vector<Parameter> parameters;  // in the order in which forward first uses them
  // Where forward comes back to a block after others, or takes them in another order: the block of
  // each of its turns. Empty: each block once. Two uses in a row are one turn.
  std::vector<int> forward_order;

  int add_unit(std::string name, bool root = false);
  void add(Parameter parameter);

  const Parameter* find(const std::string& name) const;
  int64_t num_elements() const;  // those of files: no padding, and no bytes of 4-bit weights
  // forward_order, or the blocks as they stand.
  std::vector<int> turns() const;
};

}  // namespace skein::tensor
