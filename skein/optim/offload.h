// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What of a rank's flat memory lies outside of its device, between uses?
//
// Without LibTorch: plans follow the same rules.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "skein/core/file.h"
#include "skein/core/medium.h"

namespace skein::optim {

struct Offload {
  // Of optimizer states, and with them of the gradients that the host updates from, which are in
  // host memory also where states are on a disk.
  Medium states = Medium::kDevice;
  double ratio = 1;  // the share of the states that leaves the device
  // Of shards of parameters; they need all states outside of the device too.
  Medium parameters = Medium::kDevice;

  bool any() const { return states != Medium::kDevice && ratio > 0; }
  bool uses_disk() const {
    return (any() && states == Medium::kDisk) || parameters == Medium::kDisk;
  }
  bool operator==(const Offload&) const = default;
};

// New weights of a GPU's rank go up in pieces of so many elements: large enough that starting
// threads costs little, small enough that the copy of one hides behind the update of the next. One
// slot of host memory is filled, one travels, one has just arrived.
constexpr int64_t kUploadWindow = int64_t{1} << 25;
constexpr int64_t kUploadSlots = 3;

// What lies on a disk passes through host memory in windows: one is read, one is worked on, one is
// written.
constexpr int64_t kDiskSlots = 3;
constexpr int64_t kDiskAlignment = 4096;  // of memory; a slot has as many bytes more
constexpr int64_t kMostDiskArrays =
    6;  // that pass together: weights, master, moments, their scales

struct DiskOptions {
  fs::path folder;                          // nvme_path
  int64_t block_bytes = int64_t{64} << 10;  // of a checksum
  int64_t request_bytes = 0;                // nvme_block_size; 0: what passes is one request
  int64_t depth = 0;                        // nvme_queue_depth; 0: the disk file's own
  int64_t threads = 0;                      // nvme_threads; 0: as many as `depth`

  // Elements of a window: those whose scales, one of 4 bytes for 128 elements, fill a block. So
  // every window of every array begins with a block.
  int64_t window() const { return block_bytes * 32; }
};

// Weights are fetched from it in pieces of so many bytes, where the largest shard has `largest`.
inline int64_t disk_piece_bytes(const DiskOptions& disk, int64_t largest) {
  const int64_t blocks = (largest + disk.block_bytes - 1) / disk.block_bytes;
  return std::min<int64_t>(blocks, 256) * disk.block_bytes;
}

// Host memory of one slot for windows of `elements` (of a whole range, at most), of which all
// arrays together have so many bytes each.
inline int64_t disk_slot_bytes(const DiskOptions& disk, int64_t elements,
                               double bytes_per_element) {
  const auto window = static_cast<double>(std::min(elements, disk.window()));
  const auto blocks = static_cast<int64_t>(window * bytes_per_element) / disk.block_bytes + 1;
  return (blocks + kMostDiskArrays) * disk.block_bytes;
}

struct UnitElements {
  int64_t trainable = 0;
  bool root = false;
};

// Whose states leave the device: whole units, until they hold `ratio` of what trains. The last
// blocks first, which forward needs last and backward leaves first; root units after all blocks.
inline std::vector<bool> units_off_device(const std::vector<UnitElements>& units, double ratio) {
  double wanted = 0;
  for (const auto& unit : units) wanted += static_cast<double>(unit.trainable) * ratio;
  std::vector<bool> off(units.size(), false);
  for (const bool root : {false, true}) {
    for (size_t i = units.size(); i-- > 0;) {
      if (units[i].root != root || units[i].trainable == 0 || wanted <= 0.5) continue;
      off[i] = true;
      wanted -= static_cast<double>(units[i].trainable);
    }
  }
  return off;
}

}  // namespace skein::optim
