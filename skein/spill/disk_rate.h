// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How fast do long arrays get to the disk of a folder and back?
//
// Files of these measurements have no names: nothing is left behind.

#include <chrono>
#include <cstdint>
#include <string>

#include "skein/core/file.h"
#include "skein/spill/raw_disk.h"

namespace skein::spill {

// Bytes per second.
struct DiskRates {
  double read = 0, write = 0;
};

// A quick look, for people: writes at most `bytes` and reads them back, in about `limit`, less
// where there is little room.
struct QuickLook {
  DiskRates rates;
  uint64_t bytes = 0;  // that were written and read; 0: there is no room to measure
  bool is_direct = false, uses_io_uring = false;
};
QuickLook look_at_disk(const fs::path& folder, uint64_t bytes = uint64_t{256} << 20,
                       std::chrono::milliseconds limit = std::chrono::milliseconds(800));

struct DiskBenchOptions {
  fs::path folder = ".";
  uint64_t bytes = uint64_t{2} << 30;  // of each of two files; rounded up to whole transfers
  int rounds = 5;
  std::string folder_key = "--path";  // what a user gives another folder with
};

// A SpillFile beside the disk's raw rate in the same run, in turn.
struct DiskBench {
  uint64_t bytes = 0;
  RawSetting raw_read_setting, raw_write_setting;  // the fastest of raw_settings()
  DiskRates raw, spill;                            // medians of the rounds
  DiskRates share;                                 // spill / raw, medians of the rounds' own
  bool is_direct = false, uses_io_uring = false;
};

// Throws IoError when what is read is not what was written, as every SpillFile does.
DiskBench bench_disk(const DiskBenchOptions& options);

}  // namespace skein::spill
