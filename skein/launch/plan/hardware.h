// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does this machine offer a run?

#include <string>

namespace skein::launch {

struct Hardware {
  int gpus = 0;                    // visible ones: CUDA_VISIBLE_DEVICES is honoured
  bool gpus_have_bfloat16 = true;  // all visible ones, in hardware (compute capability 8 and up)
  std::string gpu_problem;         // a GPU is present, and this is why it cannot be used
  int cores = 1;                   // this process may run on
  int numa_nodes = 1;
};

// Asks the CUDA driver (about 0.2 s where there is one, 60 s at most); `ask_gpus` false spares
// that.
Hardware look_at_hardware(bool ask_gpus);

}  // namespace skein::launch
