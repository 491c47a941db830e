// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Rotary position embedding in Hugging Face's half-split form: channel i of a head turns together
// with channel i + D/2, by position · theta^(-2i/D).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace skein::ops {

struct RopeTable {
  at::Tensor cos, sin;  // (T, D/2), or (B, T, D/2) where rows differ
};

// Of `positions` (T) or (B, T), or of 0 … T-1. Angles are fp32 whatever the dtype of `options` (as
// Hugging Face's, also in float64), then cosines and sines are rounded to it.
RopeTable rope_table(int64_t num_tokens, int64_t head_dim, double theta,
                     const at::TensorOptions& options);
RopeTable rope_table(const at::Tensor& positions, int64_t head_dim, double theta,
                     const at::TensorOptions& options);

// Of positions and frequencies (D/2), how far a pair of channels turns from one position to the
// next; cosines and sines times `magnitude`.
RopeTable rope_table(const at::Tensor& positions, const at::Tensor& frequencies, double magnitude,
                     const at::TensorOptions& options);
// theta^(-2i/D) in fp32, on the device of `options`.
at::Tensor rope_frequencies(int64_t head_dim, double theta, const at::TensorOptions& options);

// x (B, T, H, D). Where the table has fewer than D/2 columns, a head's last channels stay.
at::Tensor rotate(const at::Tensor& x, const RopeTable& table);
// Both, at once where they lie beside each other and no gradients are taken.
std::pair<at::Tensor, at::Tensor> rotate(const at::Tensor& q, const at::Tensor& k,
                                         const RopeTable& table);

}  // namespace skein::ops
