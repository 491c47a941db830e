// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where the time of some updates went, and what they computed: a page of text.

#include <cstdint>
#include <string>
#include <vector>

namespace skein::report {

struct ProfileRow {
  std::string name;
  double amount = 0;
};

// Sums over all updates.
struct Profile {
  std::string updates;  // "10-12"
  int64_t num_updates = 1;
  int64_t ranks = 1;
  bool of_device = false;          // phases by the device's clock, else by the host's
  double seconds = 0;              // from the first update's begin to the last one's end
  std::vector<ProfileRow> phases;  // seconds, on this rank
  double seconds_waiting = 0;      // of the host, for collectives; inside the phases
  int64_t num_tokens = 0;          // of all ranks
  std::vector<ProfileRow> flops;   // by component of the model, of all ranks
  double peak_flops = 0;           // of one rank's device; 0: not known
  int64_t peak_memory_bytes = 0;   // flat buffers of this rank
};

// Per update; several lines, the last one ends too.
std::string profile_table(const Profile& profile);

}  // namespace skein::report
