// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Built when CUDA is off.
#include "skein/comm/backend.h"
#include "skein/core/error.h"

namespace skein::comm {

std::shared_ptr<Backend> make_nccl(const GroupOptions&, Store&) {
  throw UserError(
      "this build has no NCCL: build with `make cuda` (CMake preset cuda), or use the gloo "
      "backend");
}

}  // namespace skein::comm
