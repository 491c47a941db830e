// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does the disk give to a program that does nothing else?
//
// The measure for disk_rate.h: requests of one size, a fixed number of them in flight, O_DIRECT,
// straight through io_uring; no checksums, no owner who waits for one of them. It goes round the
// same memory as an owner does, because arrays are larger than caches: with a few megabytes that
// nobody looks at, a disk that a virtual machine's host copies from is up to a third faster, and no
// program that uses what it reads could reach that.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "skein/core/file.h"
#include "skein/spill/transfer.h"

namespace skein::spill {

struct RawSetting {
  uint64_t request_bytes = 1 << 20;
  unsigned depth = 16;

  uint64_t memory_bytes() const { return request_bytes * depth; }
};

// From small requests to large ones, few to many.
const std::vector<RawSetting>& raw_settings();

// A file without a name, opened with O_DIRECT. Throws IoError where the folder does not allow it.
File create_raw_file(const fs::path& folder, uint64_t bytes);

// Bytes per second over the first `bytes` of the file (rounded down to whole requests), from front
// to back, into and out of all of `memory` in turn. Throws IoError, also where io_uring is
// forbidden.
double raw_rate(const File& file, uint64_t bytes, Transfer::Kind kind, RawSetting setting,
                std::span<std::byte> memory);

}  // namespace skein::spill
