// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do a rank's long buffers lie in?

#include <cstdint>

namespace skein {

enum class Medium : uint8_t {
  kDevice,      // memory of the GPU; of a rank on a CPU, the host's
  kPinnedHost,  // host memory that a GPU can copy from and to; on a CPU, plain
  kDisk,
};

// What is done with long buffers from outside of a step.
enum class Access : uint8_t {
  kRead,
  kSet,
  kCopy,  // read, by who compares afterwards
};

// Bytes in each, counted apart.
struct MediumBytes {
  int64_t device = 0, pinned_host = 0, disk = 0;

  int64_t& operator[](Medium medium) {
    return medium == Medium::kDevice ? device : medium == Medium::kPinnedHost ? pinned_host : disk;
  }
  bool operator==(const MediumBytes&) const = default;
};

}  // namespace skein
