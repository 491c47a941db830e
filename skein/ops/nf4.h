// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Weights in 4 bits: made on the host, equal to bitsandbytes' there (docs/adapters.md), and read
// back by a kernel.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "skein/core/nf4_layout.h"

namespace skein::ops {

// A matrix whose elements lie in bytes.
struct Nf4Matrix {
  int64_t rows = 0, columns = 0;
  bool doubly = true;       // double_quantization
  bool transposed = false;  // the product takes its transpose: GPT-2's layers

  Nf4Layout layout() const { return {.numel = rows * columns, .doubly = doubly}; }
};

// Fills `values`, fp32 on the host, with the elements from `begin` on.
using ReadValues = std::function<void(int64_t begin, const at::Tensor& values)>;

// The bytes of a tensor, 1-D on the host. Its values are asked for in pieces, in order: no copy of
// it is ever whole. The same bytes for any number of threads. A value that is not a number makes
// its block so (of double quantisation, the tensor).
at::Tensor quantise_nf4(const Nf4Layout& layout, const ReadValues& read);

// The matrix (rows, columns), or the transposed view of it: fp32 values, rounded once to `dtype`.
// On a GPU at the speed of memory: half a byte is read for an element, and the element written.
at::Tensor dequantise_nf4(const at::Tensor& bytes, const Nf4Matrix& matrix, at::ScalarType dtype);

}  // namespace skein::ops
