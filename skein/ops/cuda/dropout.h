// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <cuda_runtime_api.h>

#include "skein/ops/dropout_kernel.h"

namespace skein::ops {

void launch_dropout(const DropoutCall& call, cudaStream_t stream);

}  // namespace skein::ops
