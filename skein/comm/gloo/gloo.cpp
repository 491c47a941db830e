// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Gloo ranks: one thread per group carries the collectives, one after the other.
//
// A reduction has steps on our side between those on the wire, and Gloo matches ranks by the order
// of calls. With one carrier that order is the program's, whatever order the works are waited for
// in, and the steps overlap with the caller's computation.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "skein/comm/backend.h"
#include "skein/comm/c10d_error.h"
#include "skein/comm/ordered_sum.h"
#include "skein/comm/store_adapter.h"
#include "skein/core/error.h"
#include "skein/launch/board.h"

namespace skein::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs tasks in order on a thread of its own.
class Carrier {
 public:
  Carrier() : thread_([this] { run(); }) {}
  ~Carrier() { stop(); }

  std::shared_future<void> enqueue(std::function<void()> task) {
    std::packaged_task<void()> packaged(std::move(task));
    auto future = packaged.get_future().share();
    const std::lock_guard lock(mutex_);
    SKEIN_CHECK(!stopping_, "a collective was issued after the group's shutdown");
    tasks_.push_back(std::move(packaged));
    changed_.notify_one();
    return future;
  }

  // Finishes what was enqueued, then ends the thread.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (auto task = next()) (*task)();
  }

  std::optional<std::packaged_task<void()>> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return std::nullopt;
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

class GlooBackend final : public Backend {
 public:
  GlooBackend(const GroupOptions& options, c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo)
      : Backend(options.rank, options.size), gloo_(std::move(gloo)) {}

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) override {
    return carry({"all_gather", whole.nbytes(), call},
                 [this, whole, shard] { gather(whole, shard); });
  }

  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) override {
    return carry({"reduce_scatter", whole.nbytes(), call},
                 [this, shard, whole] { scatter(shard, whole); });
  }

  Work all_reduce(const at::Tensor& whole, uint64_t call) override {
    return carry({"all_reduce", whole.nbytes(), call}, [this, whole] {
      const auto shard = whole.narrow(0, rank() * (whole.numel() / size()), whole.numel() / size());
      scatter(shard, whole);
      gather(whole, shard);
    });
  }

  Work broadcast(const at::Tensor& tensor, int root, uint64_t call) override {
    return carry({"broadcast", tensor.nbytes(), call}, [this, tensor, root] {
      std::vector<at::Tensor> tensors{bytes_of(tensor)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      gloo_->broadcast(tensors, options)->wait();
    });
  }

  void gather_host(std::span<const std::byte> mine, std::span<std::byte> all,
                   uint64_t call) override {
    auto work = carry({"host sum", all.size(), call}, [this, mine, all] {
      auto out = bytes_at(all.data(), all.size());
      // from_blob takes no pointer to const; Gloo only reads its input.
      auto in = bytes_at(const_cast<std::byte*>(mine.data()), mine.size());
      gloo_->_allgather_base(out, in)->wait();
    });
    work.wait();
  }

  void shutdown() override {
    carrier_.stop();
    gloo_.reset();
  }

 private:
  // Gloo only moves bytes here, so that every type is alike to it.
  static at::Tensor bytes_at(void* data, size_t size) {
    return at::from_blob(data, {static_cast<int64_t>(size)}, at::TensorOptions(at::kByte));
  }
  static at::Tensor bytes_of(const at::Tensor& tensor) {
    return bytes_at(tensor.data_ptr(), tensor.nbytes());
  }

  void gather(const at::Tensor& whole, const at::Tensor& shard) {
    auto out = bytes_of(whole);
    auto in = bytes_of(shard);
    gloo_->_allgather_base(out, in)->wait();
  }

  // c10d's own reduce-scatter is an all-reduce of the whole, twice the bytes, and its order of
  // summation depends on the position in the buffer.
  void scatter(const at::Tensor& shard, const at::Tensor& whole) {
    auto received = at::empty({static_cast<int64_t>(whole.nbytes())}, at::TensorOptions(at::kByte));
    auto in = bytes_of(whole);
    std::vector<int64_t> equal_parts;
    gloo_->alltoall_base(received, in, equal_parts, equal_parts)->wait();
    std::vector<const void*> pieces(size());
    for (int peer = 0; peer < size(); ++peer) {
      pieces[peer] = received.const_data_ptr<uint8_t>() + peer * shard.nbytes();
    }
    ordered_sum(shard.scalar_type(), shard.data_ptr(), pieces, shard.numel());
  }

  struct Call {
    const char* operation;
    size_t bytes;
    uint64_t number;  // on the rank's board
  };

  Work carry(const Call& call, std::function<void()> steps) {
    auto future = carrier_.enqueue([this, call, start = Clock::now(), steps = std::move(steps)] {
      run(fmt::format("{} of {} bytes on rank {} of {}", call.operation, call.bytes, rank(),
                      size()),
          start, steps);
      launch::end_call(call.number);
    });
    return Work([future] { future.get(); });
  }

  // On the carrier's thread. After a failure the ranks' calls may no longer match: refuse the rest.
  void run(const std::string& call, Clock::time_point start, const std::function<void()>& steps) {
    if (!failure_.empty()) {
      throw CommError(fmt::format("{} was not begun: {}", call, failure_));
    }
    try {
      steps();
    } catch (const InternalError&) {
      failure_ = "an earlier collective met an internal error";
      throw;
    } catch (const std::exception& error) {
      failure_ =
          fmt::format("{} failed after {:.1f} s: {}", call, seconds_since(start), reason_of(error));
      throw CommError(failure_);
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  std::string failure_;  // the carrier's
  Carrier carrier_;      // last: its tasks use the others
};

// c10d records every collective in a table of the process, of which parts are not locked: groups
// on several threads (ranks as threads) would corrupt it. Read by c10d once, at the first call.
void switch_off_recorder() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("TORCH_FR_BUFFER_SIZE", "0", 1); });
}

}  // namespace

std::shared_ptr<Backend> make_gloo(const GroupOptions& options, Store& store) {
  const auto start = Clock::now();
  try {
    switch_off_recorder();
    auto gloo_options = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo_options->threads = 1;  // the carrier issues one collective at a time
    gloo_options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    auto adapter = c10::make_intrusive<StoreAdapter>(
        store, group_prefix(store, "gloo", options.size), options.timeout);
    return std::make_shared<GlooBackend>(
        options, c10::make_intrusive<c10d::ProcessGroupGloo>(adapter, options.rank, options.size,
                                                             gloo_options));
  } catch (const std::exception& error) {
    throw CommError(fmt::format("rank {} of {} could not join the others on {} after {:.1f} s: {}",
                                options.rank, options.size, options.address, seconds_since(start),
                                reason_of(error)));
  }
}

}  // namespace skein::comm
