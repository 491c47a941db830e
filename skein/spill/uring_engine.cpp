// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "skein/core/error.h"
#include "skein/core/host_memory.h"
#include "skein/spill/engine.h"

namespace skein::spill {
namespace {

// One request carries at most this much; the kernel's own limit is just below 2 GiB.
constexpr size_t kMostBytes = size_t{1} << 30;

bool knows_reads_and_writes(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  const bool knows = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                     io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
  io_uring_free_probe(probe);
  return knows;
}

class UringEngine final : public Engine {
 public:
  UringEngine(int descriptor, unsigned depth) : descriptor_(descriptor), depth_(depth) {}
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;
  ~UringEngine() override {
    if (is_open_) io_uring_queue_exit(&ring_);
  }

  // Why it cannot be had; empty when it can.
  std::string open() {
    if (const int code = io_uring_queue_init(depth_, &ring_, 0); code < 0) {
      return code == -ENOMEM ? want_of_memory() : std::strerror(-code);
    }
    is_open_ = true;
    return knows_reads_and_writes(ring_) ? "" : "the kernel is older than Linux 5.6";
  }

  void start(Transfer& transfer) override {
    waiting_.push_back(&transfer);
    take_finished();
    hand_on();
  }

  void finish(Transfer& transfer) override {
    while (!transfer.done) {
      take_finished();
      hand_on();
      if (!transfer.done) wait_for_one();
    }
  }

 private:
  // Before Linux 5.12 a ring counts as locked memory, and liburing knows by how much. (Later ones
  // count only registered buffers, of which there are none here.)
  std::string want_of_memory() const {
    const auto bytes = io_uring_mlock_size(depth_, 0);
    const auto limit = bytes > 0 ? memlock_advice(static_cast<uint64_t>(bytes)) : "";
    return limit.empty() ? std::strerror(ENOMEM) : limit;
  }

  void take_finished() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      auto& transfer = *static_cast<Transfer*>(io_uring_cqe_get_data(entry));
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      --under_way_;
      if (transfer.take(result)) {
        waiting_.push_front(&transfer);
      } else {
        transfer.done = true;
      }
    }
  }

  // Gives the kernel what waits, up to the depth.
  void hand_on() {
    while (!waiting_.empty() && under_way_ < depth_) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) break;
      prepare(*entry, *waiting_.front());
      waiting_.pop_front();
      ++under_way_;
    }
    while (io_uring_sq_ready(&ring_) > 0) {
      const int code = io_uring_submit(&ring_);
      if (code >= 0 || code == -EINTR) continue;
      // Memory is short: what is under way gives some back.
      if (code != -EAGAIN && code != -EBUSY) fail(code);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void prepare(io_uring_sqe& entry, Transfer& transfer) const {
    const auto rest = transfer.rest();
    const auto bytes = static_cast<unsigned>(std::min(rest.size(), kMostBytes));
    if (transfer.kind == Transfer::Kind::kRead) {
      io_uring_prep_read(&entry, descriptor_, rest.data(), bytes, transfer.rest_offset());
    } else {
      io_uring_prep_write(&entry, descriptor_, rest.data(), bytes, transfer.rest_offset());
    }
    io_uring_sqe_set_data(&entry, &transfer);
  }

  void wait_for_one() {
    io_uring_cqe* entry = nullptr;
    const int code = io_uring_wait_cqe(&ring_, &entry);
    if (code < 0 && code != -EINTR && code != -EAGAIN) fail(code);
  }

  [[noreturn]] static void fail(int code) {
    throw IoError(fmt::format("io_uring does not answer: {} (SKEIN_IO_URING=0 does without it)",
                              std::strerror(-code)));
  }

  const int descriptor_;
  const unsigned depth_;
  io_uring ring_{};
  bool is_open_ = false;
  unsigned under_way_ = 0;         // in the kernel, or on the way to it
  std::deque<Transfer*> waiting_;  // for a place in the kernel
};

}  // namespace

std::unique_ptr<Engine> make_uring_engine(int descriptor, unsigned depth, std::string& refusal) {
  auto engine = std::make_unique<UringEngine>(descriptor, depth);
  refusal = engine->open();
  if (!refusal.empty()) return nullptr;
  return engine;
}

}  // namespace skein::spill
