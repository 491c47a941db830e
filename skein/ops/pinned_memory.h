// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Host memory that a GPU copies from and to at full speed.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace skein::ops {

// A byte tensor of exactly so many bytes, rounded up to pages; torch's allocator takes the next
// power of two. Zero. Throws UserError, with the number, where the system locks no more memory.
at::Tensor pinned_memory(int64_t bytes);

}  // namespace skein::ops
