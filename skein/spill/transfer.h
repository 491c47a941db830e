// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// One run of bytes on its way between memory and a file.

#include <cstddef>
#include <cstdint>
#include <span>

namespace skein::spill {

// What O_DIRECT asks of offsets, sizes and addresses, on every disk that we know.
constexpr uint64_t kAlignment = 4096;

struct Transfer {
  enum class Kind { kRead, kWrite };

  Kind kind = Kind::kRead;
  uint64_t offset = 0;  // in the file
  std::span<std::byte> memory;

  // How it went: of its engine (engine.h) until `done`.
  size_t carried = 0;  // bytes
  int failure = 0;     // an errno
  bool ended = false;  // the file ended before the last byte
  bool done = false;
  int pauses = 0;  // how often the kernel asked to be called again

  std::span<std::byte> rest() const { return memory.subspan(carried); }
  uint64_t rest_offset() const { return offset + carried; }

  // What one system call returned: bytes, or a negated errno. True when the rest is to be carried
  // by another call: it was short, interrupted, or asked for patience.
  bool take(int64_t result);
};

}  // namespace skein::spill
