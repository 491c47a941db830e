// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How fast is AdamW on this machine's memory? Beside it, in the same run and on the same arrays,
// its limit (a triad, a = b + s · c) and torch's fused AdamW.

#include <cstdint>

#include "skein/core/dtype.h"

namespace skein::optim {

struct UpdateBenchOptions {
  int64_t elements = int64_t{1} << 26;  // far more than caches hold; 16 to 22 bytes of memory each
  DType dtype = DType::kF32;            // of weights and gradients: fp32, bf16 or fp16
  int64_t rounds = 10;                  // of all three in turn; the best of each counts
  int threads = 1;
};

// Bytes per second. An update counts 28 bytes per element, a triad 12 (STREAM's count).
struct UpdateBench {
  double update = 0;
  double triad = 0;  // with the stores that are faster here: usual ones, or around the caches
  double torch = 0;  // in fp32, which moves as many bytes: it has no 16-bit weights with a master
};
// Throws InternalError if an update and torch's differ.
UpdateBench bench_update(const UpdateBenchOptions& options);

}  // namespace skein::optim
