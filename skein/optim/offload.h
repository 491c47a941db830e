// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What of a rank's flat memory lies outside of its device, between uses?
//
// Without LibTorch: plans follow the same rules.

#include <cstdint>
#include <vector>

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
  bool operator==(const Offload&) const = default;
};

// New weights of a GPU's rank go up in pieces of so many elements: large enough that starting
// threads costs little, small enough that the copy of one hides behind the update of the next. One
// slot of host memory is filled, one travels, one has just arrived.
constexpr int64_t kUploadWindow = int64_t{1} << 24;
constexpr int64_t kUploadSlots = 3;

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
