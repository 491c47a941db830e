// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The stream that kernels of this folder run on: torch's current one of the current device. Free
// of torch, so that `.cu` files stay so.

#include <cuda_runtime_api.h>

namespace skein::ops {

cudaStream_t current_stream();
// Throws when the launch before it failed.
void check_launch();

}  // namespace skein::ops
