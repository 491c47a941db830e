// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

#include "skein/ops/added_norm.h"

namespace skein::ops {

// x / √(mean(x²) + epsilon) · weight over the last dimension, as Hugging Face's Llama rounds it:
// normalised in fp32 (fp64 for float64), rounded to x's dtype, then multiplied by the weight (C).
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// The sum x + delta and its rms_norm. Where delta is undefined, the sum is x.
AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                       double epsilon);

// Gemma's: the weight is stored less one, and 1 + weight multiplies before the one rounding. Not
// fused.
at::Tensor rms_norm_plus_one(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace skein::ops
