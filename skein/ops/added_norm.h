// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How a residual stream goes from one layer to the next: what is added to it, and its norm, in one
// pass over memory on a GPU. The backward pass adds the stream's own gradient in the norm's kernel.

#include <ATen/core/Tensor.h>

namespace skein::ops {

struct AddedNorm {
  at::Tensor sum;  // the stream
  at::Tensor normalised;
};

}  // namespace skein::ops
