// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// "These elements of that named tensor are here": the one vocabulary in which sharding and
// checkpoints speak to each other.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace skein::tensor {

struct TensorSlice {
  std::string name;                   // as in the file
  std::vector<int64_t> shape;         // of the whole tensor
  at::ScalarType dtype = at::kFloat;  // in the file
  int64_t begin = 0;                  // elements of the whole tensor, row-major
  int64_t end = 0;
  at::Tensor data;  // 1-D, end - begin elements, on any device; aliases the live memory
};

}  // namespace skein::tensor
