// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is the gradient of a linear layer's parameters for each document of a run?
//
// Every one of them, its weight, its bias and the two matrices of its adapter, is a sum over a
// document's tokens of one vector times another: of what the layer was given and the gradient of
// what it gave (tensor/tap.h).

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "skein/model/layers.h"
#include "skein/tensor/tap.h"

namespace skein::gradient_features {

// A vector for every token, as a layer has it: what was seen, or scale · what was seen · through.
enum class Seen { kInput, kOutputGradient, kOne };
struct Factor {
  Seen seen = Seen::kInput;
  at::Tensor through{};  // (channels, n), or undefined: as it was seen
  double scale = 1;
};

// The gradient of a matrix (p, q), or of a vector (p) with q = 1: over a document's tokens the sum
// of left[t, i] · right[t, j]. Elements lie as in files, row by row.
struct FactorPair {
  std::string name;    // the parameter's
  Factor left, right;  // of p and of q numbers
};

// The same, with what was seen.
struct OuterProduct {
  std::string name;
  at::Tensor left;   // (T, p)
  at::Tensor right;  // (T, q)

  int64_t numel() const { return left.size(1) * right.size(1); }
};

// The parameters of a layer whose gradients are such sums. Those of DoRA and of weights in 4 bits
// are not.
std::vector<std::string> parameters_of(const model::TappedLinear& linear);

// Those of them that are `wanted`, in fp32 (float64 for float64 models). The layer's parameters are
// whole.
using Wanted = std::function<bool(const std::string&)>;
std::vector<FactorPair> factors_of(const model::TappedLinear& linear, const Wanted& wanted);
std::vector<OuterProduct> outer_products(const model::TappedLinear& linear,
                                         const tensor::Tapped& seen, const Wanted& wanted);

// Calls `use` with the documents' gradients, some elements of all of them at a time: rows
// (documents, elements), and the first element's place. `ends` are those of the documents. At most
// `memory` bytes at a time, as far as one row of the matrix allows.
using UseRows = std::function<void(const at::Tensor& rows, int64_t first_element)>;
void for_rows(const OuterProduct& product, std::span<const int32_t> ends, int64_t memory,
              const UseRows& use);

}  // namespace skein::gradient_features
