// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Built when CUDA is off: the kernels that this build does not have.
#include "skein/core/error.h"
#include "skein/ops/dropout_kernel.h"

namespace skein::ops {

void dropout_on_cuda(const DropoutCall&, int) {
  throw UserError(
      "this build has no CUDA kernels: build with make: Nothing to be done for 'cuda'., or set "
      "device: cpu");
}

}  // namespace skein::ops
