// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The factorised projection: both sides of a gradient by random signs, before they are multiplied.
//
// A parameter's gradient is a sum over tokens of left times right (layer_gradients.h), so its
// projection is the sum of (left · L)ᵀ (right · R) with small L and R (docs/gradient_format.md). No
// gradient is formed: what a layer has seen is read once, for few columns, and all that comes after
// is as small as these.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "skein/gradient_features/document_pieces.h"
#include "skein/gradient_features/files/projection.h"
#include "skein/gradient_features/layer_gradients.h"

namespace skein::gradient_features {

class FactorProjection {
 public:
  // Parameters with their sides, in the order of their columns. The signs are made here and stay on
  // the device of `options`, which are those of the rows: fp32, or float64.
  FactorProjection(const std::vector<ProjectedParameter>& parameters, uint64_t seed,
                   const at::TensorOptions& options);

  // A run of documents, of which layer after layer is added.
  class Rows {
   public:
    Rows(const FactorProjection& projection, std::span<const int32_t> ends);

    // Those of the layer's parameters that are projected. Never waits for the device.
    void add(const model::TappedLinear& linear, const tensor::Tapped& seen);

    // (documents, columns)
    at::Tensor sums() const { return pieces_.sum(products_); }

   private:
    const FactorProjection& projection_;
    DocumentPieces pieces_;
    at::Tensor products_;  // (pieces, columns)
  };

 private:
  struct Parameter {
    FactorSides sides;
    at::Tensor left, right;  // (p, a) and (q, b): the signs
    int64_t first_column = 0;
  };

  std::map<std::string, Parameter> parameters_;
  int64_t columns_ = 0;
  at::TensorOptions options_;
};

}  // namespace skein::gradient_features
