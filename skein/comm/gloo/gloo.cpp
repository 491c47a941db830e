// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Gloo ranks: two lines between them, one for tensors and one for the host's sums. Each is a set of
// connections and a thread that carries the calls one after the other.
//
// A reduction has steps on our side between those on the wire, and Gloo matches ranks by the order
// of calls. With one thread per line that order is the program's, whatever order the works are
// waited for in, and the steps overlap with the caller's computation. A host sum does not queue
// behind tensors that still travel.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "skein/board/board.h"
#include "skein/comm/backend.h"
#include "skein/comm/c10d_error.h"
#include "skein/comm/carrier.h"
#include "skein/comm/ordered_sum.h"
#include "skein/comm/store_adapter.h"
#include "skein/core/error.h"

namespace skein::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What broke the group. After it the ranks' calls may no longer match, on either line.
class Failure {
 public:
  std::string what() {
    const std::lock_guard lock(mutex_);
    return what_;
  }
  void set(std::string what) {
    const std::lock_guard lock(mutex_);
    if (what_.empty()) what_ = std::move(what);
  }

 private:
  std::mutex mutex_;
  std::string what_;
};

class Line {
 public:
  using Gloo = c10d::ProcessGroupGloo;

  Line(c10::intrusive_ptr<Gloo> gloo, std::shared_ptr<Failure> failure)
      : gloo_(std::move(gloo)), failure_(std::move(failure)) {}

  Work carry(const Call& call, std::function<void(Gloo&)> steps) {
    auto future = carrier_.enqueue([this, call, start = Clock::now(), steps = std::move(steps)] {
      run(call, start, steps);
      board::end_call(call.number);
    });
    return Work([future] { future.get(); });
  }

  void shutdown() {
    carrier_.stop();
    gloo_.reset();
  }

 private:
  // On the carrier's thread.
  void run(const Call& call, Clock::time_point start, const std::function<void(Gloo&)>& steps) {
    const auto text = fmt::format("{} of {} bytes on rank {} of {}", call.operation, call.bytes,
                                  gloo_->getRank(), gloo_->getSize());
    if (const auto failure = failure_->what(); !failure.empty()) {
      throw CommError(fmt::format("{} was not begun: {}", text, failure));
    }
    try {
      steps(*gloo_);
    } catch (const InternalError&) {
      failure_->set("an earlier collective met an internal error");
      throw;
    } catch (const std::exception& error) {
      const auto failure =
          fmt::format("{} failed after {:.1f} s: {}", text, seconds_since(start), reason_of(error));
      failure_->set(failure);
      throw CommError(failure);
    }
  }

  c10::intrusive_ptr<Gloo> gloo_;
  std::shared_ptr<Failure> failure_;
  Carrier carrier_;  // last: its tasks use the others
};

// Gloo only moves bytes here, so that every type is alike to it.
at::Tensor bytes_at(void* data, size_t size) {
  return at::from_blob(data, {static_cast<int64_t>(size)}, at::TensorOptions(at::kByte));
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return bytes_at(tensor.data_ptr(), tensor.nbytes());
}

void gather(Line::Gloo& gloo, const at::Tensor& whole, const at::Tensor& shard) {
  auto out = bytes_of(whole);
  auto in = bytes_of(shard);
  gloo._allgather_base(out, in)->wait();
}

// c10d's own reduce-scatter is an all-reduce of the whole, twice the bytes, and its order of
// summation depends on the position in the buffer.
void scatter(Line::Gloo& gloo, const at::Tensor& shard, const at::Tensor& whole) {
  auto received = at::empty({static_cast<int64_t>(whole.nbytes())}, at::TensorOptions(at::kByte));
  auto in = bytes_of(whole);
  std::vector<int64_t> equal_parts;
  gloo.alltoall_base(received, in, equal_parts, equal_parts)->wait();
  std::vector<const void*> pieces(gloo.getSize());
  for (size_t peer = 0; peer < pieces.size(); ++peer) {
    pieces[peer] = received.const_data_ptr<uint8_t>() + peer * shard.nbytes();
  }
  ordered_sum(shard.scalar_type(), shard.data_ptr(), pieces, shard.numel());
}

std::shared_ptr<Backend> connect_gloo(const Meeting& meeting);

class GlooBackend final : public Backend {
 public:
  // `tensors` is null where another backend carries them.
  GlooBackend(Meeting meeting, std::unique_ptr<Line> tensors, std::unique_ptr<Line> host)
      : Backend(meeting.options.rank, meeting.options.size),
        meeting_(std::move(meeting)),
        tensors_(std::move(tensors)),
        host_(std::move(host)) {}

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) override {
    return tensors().carry({"all_gather", whole.nbytes(), call},
                           [=](Line::Gloo& gloo) { gather(gloo, whole, shard); });
  }

  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) override {
    return tensors().carry({"reduce_scatter", whole.nbytes(), call},
                           [=](Line::Gloo& gloo) { scatter(gloo, shard, whole); });
  }

  Work all_reduce(const at::Tensor& whole, uint64_t call) override {
    const auto shard = whole.narrow(0, rank() * (whole.numel() / size()), whole.numel() / size());
    return tensors().carry({"all_reduce", whole.nbytes(), call}, [=](Line::Gloo& gloo) {
      scatter(gloo, shard, whole);
      gather(gloo, whole, shard);
    });
  }

  Work broadcast(const at::Tensor& tensor, int root, uint64_t call) override {
    return tensors().carry({"broadcast", tensor.nbytes(), call}, [=](Line::Gloo& gloo) {
      std::vector<at::Tensor> tensors{bytes_of(tensor)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      gloo.broadcast(tensors, options)->wait();
    });
  }

  Work gather_host(HostBytes all, uint64_t call) override {
    return host_->carry({"host sum", all->size(), call}, [all, rank = rank()](Line::Gloo& gloo) {
      const size_t part = all->size() / static_cast<size_t>(gloo.getSize());
      gather(gloo, bytes_at(all->data(), all->size()),
             bytes_at(all->data() + static_cast<size_t>(rank) * part, part));
    });
  }

  Work compose(const Call& call, std::vector<at::Tensor>, std::function<void()> steps) override {
    return tensors().carry(call, [steps = std::move(steps)](Line::Gloo&) { steps(); });
  }

  std::shared_ptr<Backend> split(const std::vector<int>& members) override {
    const auto part = meeting_.split(members, splits_++);
    return members.size() == 1 ? make_single() : connect_gloo(part);
  }

  void shutdown() override {
    if (tensors_) tensors_->shutdown();
    host_->shutdown();
  }

 private:
  Line& tensors() {
    SKEIN_CHECK(tensors_, "this Gloo group carries no tensors");
    return *tensors_;
  }

  Meeting meeting_;
  int splits_ = 0;
  std::unique_ptr<Line> tensors_, host_;
};

// c10d records every collective in a table of the process, of which parts are not locked: groups
// on several threads (ranks as threads) would corrupt it. Read by c10d once, at the first call.
void switch_off_recorder() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("TORCH_FR_BUFFER_SIZE", "0", 1); });
}

c10::intrusive_ptr<Line::Gloo> join(const Meeting& meeting, const char* line) {
  const auto& options = meeting.options;
  const auto start = Clock::now();
  try {
    switch_off_recorder();
    auto gloo_options = Line::Gloo::Options::create(options.timeout);
    gloo_options->threads = 1;  // a line carries one collective at a time
    gloo_options->devices.push_back(Line::Gloo::createDeviceForHostname(options.address));
    auto adapter =
        c10::make_intrusive<StoreAdapter>(*meeting.store, meeting.prefix + line, options.timeout);
    return c10::make_intrusive<Line::Gloo>(adapter, options.rank, options.size, gloo_options);
  } catch (const std::exception& error) {
    throw CommError(fmt::format("rank {} of {} could not join the others on {} after {:.1f} s: {}",
                                options.rank, options.size, options.address, seconds_since(start),
                                reason_of(error)));
  }
}

std::shared_ptr<Backend> connect_gloo(const Meeting& meeting) {
  const auto failure = std::make_shared<Failure>();
  auto tensors = std::make_unique<Line>(join(meeting, "tensors/"), failure);
  auto host = std::make_unique<Line>(join(meeting, "host/"), failure);
  return std::make_shared<GlooBackend>(meeting, std::move(tensors), std::move(host));
}

}  // namespace

std::shared_ptr<Backend> make_gloo(const GroupOptions& options, Store& store) {
  return connect_gloo({options, &store, group_prefix(store, "gloo", options.size)});
}

std::shared_ptr<Backend> make_gloo_for_host(const Meeting& meeting) {
  auto host = std::make_unique<Line>(join(meeting, "host/"), std::make_shared<Failure>());
  return std::make_shared<GlooBackend>(meeting, nullptr, std::move(host));
}

}  // namespace skein::comm
