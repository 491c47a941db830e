// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/raw_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "skein/core/error.h"

namespace skein::spill {
namespace {

class Ring {
 public:
  explicit Ring(unsigned depth) {
    const int code = io_uring_queue_init(depth, &ring_, 0);
    if (code < 0) {
      throw IoError(
          fmt::format("the raw rate of a disk is measured with io_uring, which is not "
                      "allowed here: {}",
                      std::strerror(-code)));
    }
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { io_uring_queue_exit(&ring_); }

  io_uring* get() { return &ring_; }

 private:
  io_uring ring_{};
};

// One pass over the file.
class RawPass {
 public:
  RawPass(const File& file, Transfer::Kind kind, RawSetting setting, std::span<std::byte> memory)
      : file_(file), kind_(kind), setting_(setting), memory_(memory), ring_(setting.depth) {}

  void run(uint64_t requests) {
    while (next_ < std::min<uint64_t>(requests, setting_.depth)) prepare();
    for (uint64_t finished = 0; finished < requests;) {
      if (io_uring_submit_and_wait(ring_.get(), 1) < 0) continue;  // interrupted
      io_uring_cqe* entry = nullptr;
      while (io_uring_peek_cqe(ring_.get(), &entry) == 0) {
        take(entry);
        ++finished;
        if (next_ < requests) prepare();
      }
    }
  }

 private:
  void prepare() {
    auto* entry = io_uring_get_sqe(ring_.get());
    const uint64_t slots = memory_.size() / setting_.request_bytes;
    auto* bytes = memory_.data() + next_ % slots * setting_.request_bytes;
    const auto size = static_cast<unsigned>(setting_.request_bytes);
    const uint64_t offset = next_++ * setting_.request_bytes;
    if (kind_ == Transfer::Kind::kRead) {
      io_uring_prep_read(entry, file_.descriptor(), bytes, size, offset);
    } else {
      io_uring_prep_write(entry, file_.descriptor(), bytes, size, offset);
    }
  }

  void take(io_uring_cqe* entry) {
    const int result = entry->res;
    io_uring_cqe_seen(ring_.get(), entry);
    if (result == static_cast<int>(setting_.request_bytes)) return;
    throw IoError(fmt::format("a transfer of {} bytes ended with {}", setting_.request_bytes,
                              result < 0 ? std::strerror(-result) : std::to_string(result)));
  }

  const File& file_;
  const Transfer::Kind kind_;
  const RawSetting setting_;
  const std::span<std::byte> memory_;
  Ring ring_;
  uint64_t next_ = 0;  // request
};

}  // namespace

const std::vector<RawSetting>& raw_settings() {
  constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
  static const std::vector<RawSetting> settings = {
      {256 * kKiB, 16}, {256 * kKiB, 64}, {kMiB, 4},     {kMiB, 16},
      {kMiB, 32},       {4 * kMiB, 4},    {8 * kMiB, 2}, {8 * kMiB, 4}};
  return settings;
}

File create_raw_file(const fs::path& folder, uint64_t bytes) {
  const auto path = temporary_beside(folder / "skein-raw");
  auto file = File::create(path, File::Access::kReadWrite);
  fs::remove(path);
  file.reserve(bytes);
  const int flags = ::fcntl(file.descriptor(), F_GETFL);
  if (::fcntl(file.descriptor(), F_SETFL, flags | O_DIRECT) != 0) {
    throw_errno(
        fmt::format("{} does not allow O_DIRECT: its raw rate cannot be told", folder.string()));
  }
  return file;
}

double raw_rate(const File& file, uint64_t bytes, Transfer::Kind kind, RawSetting setting,
                std::span<std::byte> memory) {
  SKEIN_CHECK(memory.size() >= setting.memory_bytes(), "too little memory for a raw pass");
  const uint64_t requests = bytes / setting.request_bytes;
  RawPass pass(file, kind, setting, memory);
  const auto begin = std::chrono::steady_clock::now();
  pass.run(requests);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(requests * setting.request_bytes) / seconds.count();
}

}  // namespace skein::spill
