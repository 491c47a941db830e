// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does this machine offer a run?

#include <cstdint>
#include <functional>
#include <string>

namespace skein::launch {

struct Hardware {
  int gpus = 0;                    // visible ones: CUDA_VISIBLE_DEVICES is honoured
  bool gpus_have_bfloat16 = true;  // all visible ones, in hardware (compute capability 8 and up)
  std::string gpu_problem;         // a GPU is present, and this is why it cannot be used
  uint64_t gpu_memory = 0;         // bytes of the smallest visible GPU; 0: none, or unknown
  int cores = 1;                   // this process may run on
  std::function<int()> count_numa_nodes = [] { return 1; };  // about 20 ms
};

// Asks the CUDA driver (about 0.2 s where there is one, 60 s at most); `ask_gpus` false spares
// that.
Hardware look_at_hardware(bool ask_gpus);

}  // namespace skein::launch
