// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

namespace skein::ops {

// By compute capability: torch's own answer counts emulation.
bool has_native_bfloat16(int cuda_device);

}  // namespace skein::ops
