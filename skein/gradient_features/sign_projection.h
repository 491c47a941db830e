// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace skein::gradient_features {

// sums (n, D) += rows (n, elements) · S, where S holds the signs of core/random.h for the
// elements of a parameter's stream from `first_element` on and the columns [0, D). All of S never
// exists: a tile of it is made, used and dropped; on GPUs, in fp32, inside the kernel that
// multiplies (ops/sign_projection_kernel.h). fp32, or float64. `sums` is contiguous, rows of `rows`
// are.
//
// Thousands of columns of a large parameter take a CPU many seconds: `goes_on`, if there is one, is
// asked after each tile with the number of its elements. Once it says no the rest is left out, and
// the sums mean nothing.
using GoesOn = std::function<bool(int64_t elements)>;
void add_projection(const at::Tensor& sums, const at::Tensor& rows, uint64_t stream,
                    int64_t first_element, const GoesOn& goes_on = {});

}  // namespace skein::gradient_features
