// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests of this folder: aligned memory with a pattern, and what a stranger does to a file that
// has no name.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "skein/core/random.h"
#include "skein/core/testing.h"
#include "skein/spill/spill_file.h"

namespace skein::spill {

// Of several blocks and a shorter last one.
constexpr uint64_t kTestBlock = 8192;
constexpr uint64_t kTestSize = 20 * kTestBlock + kAlignment;

class AlignedBytes {
 public:
  explicit AlignedBytes(uint64_t bytes) : size_(bytes) {
    memory_ = static_cast<std::byte*>(::aligned_alloc(kAlignment, bytes));
    std::memset(memory_, 0xaa, bytes);
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { ::free(memory_); }

  std::span<std::byte> all() const { return {memory_, size_}; }
  std::span<std::byte> part(uint64_t offset, uint64_t bytes) const {
    return all().subspan(offset, bytes);
  }
  // Other bytes for every seed.
  void fill(uint64_t seed) const {
    for (uint64_t at = 0; at < size_; at += sizeof(random::Words)) {
      const auto words = random::philox(seed, at);
      std::memcpy(memory_ + at, &words, sizeof words);
    }
  }

 private:
  uint64_t size_;
  std::byte* memory_;
};

inline bool equal(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size()) == 0;
}

// As a stranger with the rights of this process reaches it.
inline File open_as_stranger(const SpillFile& file) {
  const auto wanted = file.path().string() + " (deleted)";
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (fs::read_symlink(entry.path(), ignored).string() != wanted) continue;
    return File(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
  }
  ADD_FAILURE() << wanted << " is not open";
  return {};
}

inline void write_all(SpillFile& file, const AlignedBytes& bytes) {
  file.wait(file.write(0, bytes.all()));
}
inline void read_all(SpillFile& file, const AlignedBytes& bytes) {
  file.wait(file.read(0, bytes.all()));
}

// Every way that a file can be kept: on a disk and in memory (tmpfs, which older kernels do not
// open with O_DIRECT), direct or not, by io_uring or by threads.
struct Way {
  const char* name;
  const char* parent;  // empty: the usual temporary folder
  bool direct;
  EngineKind engine;
};

inline std::vector<Way> ways() {
  return {{"disk, direct, io_uring", "", true, EngineKind::kAuto},
          {"disk, direct, threads", "", true, EngineKind::kThreads},
          {"disk, cached, io_uring", "", false, EngineKind::kAuto},
          {"disk, cached, threads", "", false, EngineKind::kThreads},
          {"tmpfs, direct, io_uring", "/dev/shm", true, EngineKind::kAuto},
          {"tmpfs, cached, threads", "/dev/shm", false, EngineKind::kThreads}};
}

// A folder for each way, gone at the end.
class WayFolder {
 public:
  explicit WayFolder(const Way& way)
      : path_(make_temporary_folder(
            "spill", *way.parent == '\0' ? fs::temp_directory_path() : fs::path(way.parent))),
        options_{
            .block_bytes = kTestBlock, .depth = 3, .direct = way.direct, .engine = way.engine} {}
  WayFolder(const WayFolder&) = delete;
  WayFolder& operator=(const WayFolder&) = delete;
  ~WayFolder() { fs::remove_all(path_); }

  const fs::path& path() const { return path_; }
  const SpillOptions& options() const { return options_; }

 private:
  fs::path path_;
  SpillOptions options_;
};

}  // namespace skein::spill
