// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How fast do ranks bring each other bytes? Timed sums, for benches.

#include <ATen/core/Tensor.h>

#include "skein/comm/group.h"

namespace skein::comm {

struct LinkRate {
  double bytes_per_second = 0;  // that a rank sends in a long sum: 2 (n - 1) / n of its bytes
  double latency = 0;           // seconds of a short one
  double cpu_per_byte = 0;      // seconds of this process's cores for a byte that it sends
};

// Of `group`, a part of `world` or all of it; its parts measure at the same time, and all ranks
// make the same calls. A part of one rank takes its turns and measures nothing. Collective over
// `world`.
LinkRate measure_link(Group& group, Group& world, at::Device device);

// What all threads of this process have used of the cores.
double process_cpu_seconds();

}  // namespace skein::comm
