// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Gloo ranks: two lines between them, one for tensors and one for the host's sums. Each is a wire
// and a thread that carries the calls one after the other. Where all ranks are on one machine,
// tensors go through memory that they share (shared_wire.h).
//
// A reduction has steps on our side between those on the wire, and Gloo matches ranks by the order
// of calls. With one thread per line that order is the program's, whatever order the works are
// waited for in, and the steps overlap with the caller's computation. A host sum does not queue
// behind tensors that still travel.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "skein/board/board.h"
#include "skein/comm/backend.h"
#include "skein/comm/c10d_error.h"
#include "skein/comm/carrier.h"
#include "skein/comm/ordered_sum.h"
#include "skein/comm/shared_wire.h"
#include "skein/comm/store_adapter.h"
#include "skein/comm/wire.h"
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

using Gloo = c10d::ProcessGroupGloo;

// Gloo only moves bytes here, so that every type is alike to it.
at::Tensor bytes_at(void* data, size_t size) {
  return at::from_blob(data, {static_cast<int64_t>(size)}, at::TensorOptions(at::kByte));
}

// Connections over TCP.
//
// Messages are sent from where the bytes lie and received where they belong. c10d's own collectives
// copy the whole on the way, on a further thread, and its reduce-scatter is an all-reduce of the
// whole whose order of summation depends on the position in the buffer.
class GlooWire final : public Wire {
 public:
  explicit GlooWire(c10::intrusive_ptr<Gloo> gloo)
      : Wire(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  // A ring: between nodes, whose ranks are neighbours, each part travels once.
  void gather(std::byte* all, size_t part) override {
    const int tag = new_tag(Pattern::kGather);
    const auto place = [&](int step) { return all + part * peer(-step); };
    for (int step = 0; step + 1 < size(); ++step) {
      send(place(step), part, {peer(1), tag});
      receive(place(step + 1), part, {peer(-1), tag});
      wait();
    }
  }

  void scatter(const Reduction& reduction) override {
    const int tag = new_tag(Pattern::kScatter);
    const size_t part = reduction.part();
    auto* mine = reduction.whole;
    const auto received = at::empty({(size() - 1) * static_cast<int64_t>(part)}, at::kByte);
    auto* free = static_cast<std::byte*>(received.data_ptr());
    std::vector<const void*> pieces(size(), mine + part * rank());
    for (int distance = 1; distance < size(); ++distance, free += part) {
      receive(free, part, {peer(-distance), tag});
      pieces[peer(-distance)] = free;
      send(mine + part * peer(distance), part, {peer(distance), tag});
    }
    wait();
    ordered_sum(reduction.type, reduction.shard, pieces, reduction.count);
  }

  void broadcast(std::byte* data, size_t size, int root) override {
    std::vector<at::Tensor> tensors{bytes_at(data, size)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    gloo_->broadcast(tensors, options)->wait();
  }

 private:
  enum class Pattern { kGather, kScatter };
  struct Address {
    int peer, tag;
  };

  // Gloo matches messages by peer and tag. Ranks in different calls, or in different patterns, do
  // not take each other's bytes: they wait, and the launchers tell why.
  int new_tag(Pattern pattern) {
    calls_ = (calls_ + 1) & 0x3fffffff;
    return 2 * calls_ + static_cast<int>(pattern);
  }
  int peer(int distance) const { return (rank() + size() + distance) % size(); }

  void send(std::byte* data, size_t size, Address to) {
    std::vector<at::Tensor> message{bytes_at(data, size)};
    under_way_.push_back(gloo_->send(message, to.peer, to.tag));
  }
  void receive(std::byte* data, size_t size, Address from) {
    std::vector<at::Tensor> message{bytes_at(data, size)};
    under_way_.push_back(gloo_->recv(message, from.peer, from.tag));
  }
  void wait() {
    for (const auto& work : under_way_) work->wait();
    under_way_.clear();
  }

  c10::intrusive_ptr<Gloo> gloo_;
  int calls_ = 0;
  std::vector<c10::intrusive_ptr<c10d::Work>> under_way_;
};

class Line {
 public:
  Line(std::unique_ptr<Wire> wire, std::shared_ptr<Failure> failure)
      : wire_(std::move(wire)), failure_(std::move(failure)) {}

  Work carry(const Call& call, std::function<void(Wire&)> steps) {
    auto future = carrier_.enqueue([this, call, start = Clock::now(), steps = std::move(steps)] {
      run(call, start, steps);
      board::end_call(call.number);
    });
    return Work([future] { future.get(); });
  }

  void shutdown() {
    carrier_.stop();
    wire_.reset();
  }

 private:
  // On the carrier's thread.
  void run(const Call& call, Clock::time_point start, const std::function<void(Wire&)>& steps) {
    const auto text = fmt::format("{} of {} bytes on rank {} of {}", call.operation, call.bytes,
                                  wire_->rank(), wire_->size());
    if (const auto failure = failure_->what(); !failure.empty()) {
      throw CommError(fmt::format("{} was not begun: {}", text, failure));
    }
    try {
      steps(*wire_);
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

  std::unique_ptr<Wire> wire_;  // until the shutdown
  std::shared_ptr<Failure> failure_;
  Carrier carrier_;  // last: its tasks use the others
};

std::shared_ptr<Backend> connect_gloo(const Meeting& meeting, bool with_tensors = true);

std::byte* bytes_in(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

Reduction reduction_of(const at::Tensor& shard, const at::Tensor& whole) {
  return {shard.scalar_type(), shard.numel(), bytes_in(shard), bytes_in(whole)};
}

class GlooBackend final : public Backend {
 public:
  // `tensors` is null where another backend carries them.
  GlooBackend(Meeting meeting, std::unique_ptr<Line> tensors, std::unique_ptr<Line> host)
      : Backend(meeting.options.rank, meeting.options.size),
        meeting_(std::move(meeting)),
        tensors_(std::move(tensors)),
        host_(std::move(host)) {}

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) override {
    return tensors().carry({"all_gather", whole.nbytes(), call}, [=, this](Wire& wire) {
      auto* all = bytes_in(whole);
      auto* own = all + rank() * shard.nbytes();
      if (own != shard.data_ptr()) std::memcpy(own, shard.data_ptr(), shard.nbytes());
      wire.gather(all, shard.nbytes());
    });
  }

  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) override {
    return tensors().carry({"reduce_scatter", whole.nbytes(), call},
                           [=](Wire& wire) { wire.scatter(reduction_of(shard, whole)); });
  }

  Work all_reduce(const at::Tensor& whole, uint64_t call) override {
    const auto shard = whole.narrow(0, rank() * (whole.numel() / size()), whole.numel() / size());
    return tensors().carry({"all_reduce", whole.nbytes(), call},
                           [=](Wire& wire) { wire.reduce(reduction_of(shard, whole)); });
  }

  Work broadcast(const at::Tensor& tensor, int root, uint64_t call) override {
    return tensors().carry({"broadcast", tensor.nbytes(), call}, [=](Wire& wire) {
      wire.broadcast(bytes_in(tensor), tensor.nbytes(), root);
    });
  }

  Work gather_host(HostBytes all, uint64_t call) override {
    return host_->carry({"host sum", all->size(), call}, [all](Wire& wire) {
      wire.gather(reinterpret_cast<std::byte*>(all->data()),
                  all->size() / static_cast<size_t>(wire.size()));
    });
  }

  Work compose(const Call& call, std::vector<at::Tensor>, std::function<void()> steps) override {
    return tensors().carry(call, [steps = std::move(steps)](Wire&) { steps(); });
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

using Device = std::shared_ptr<::gloo::transport::Device>;

// Lines share a device: it is a thread that wakes up a hundred times a second.
std::unique_ptr<Wire> join(const Meeting& meeting, const char* line, Device& device) {
  const auto& options = meeting.options;
  switch_off_recorder();
  auto gloo_options = Gloo::Options::create(options.timeout);
  gloo_options->threads = 1;  // a line carries one collective at a time
  if (!device) device = Gloo::createDeviceForHostname(options.address);
  gloo_options->devices.push_back(device);
  auto adapter =
      c10::make_intrusive<StoreAdapter>(*meeting.store, meeting.prefix + line, options.timeout);
  return std::make_unique<GlooWire>(
      c10::make_intrusive<Gloo>(adapter, options.rank, options.size, gloo_options));
}

struct Wires {
  std::unique_ptr<Wire> host, tensors;
};

CommError not_joined(const GroupOptions& options, Clock::time_point start,
                     const std::exception& error) {
  // Gloo listens on ports of the system's choice, and its own words name none of them.
  const auto* advice = options.address.starts_with("127.")
                           ? ""
                           : " (the ranks connect to each other on ports of the system's choice: "
                             "does a firewall between the machines close them?)";
  return CommError(fmt::format("rank {} of {} could not join the others on {} after {:.1f} s: {}{}",
                               options.rank, options.size, options.address, seconds_since(start),
                               reason_of(error), advice));
}

Wires join_all(const Meeting& meeting, bool with_tensors) {
  const auto& options = meeting.options;
  const auto start = Clock::now();
  try {
    Device device;
    Wires wires{.host = join(meeting, "host/", device), .tensors = nullptr};
    if (!with_tensors) return wires;
    wires.tensors = share_memory(*wires.host, options.shared_memory, options.timeout);
    if (!wires.tensors) wires.tensors = join(meeting, "tensors/", device);
    return wires;
  } catch (const std::system_error& error) {
    // No thread is to be had here: no peer and no network is to blame.
    if (error.code() == std::errc::resource_unavailable_try_again) throw;
    throw not_joined(options, start, error);
  } catch (const std::exception& error) {
    throw not_joined(options, start, error);
  }
}

std::shared_ptr<Backend> connect_gloo(const Meeting& meeting, bool with_tensors) {
  auto wires = join_all(meeting, with_tensors);
  const auto failure = std::make_shared<Failure>();
  auto host = std::make_unique<Line>(std::move(wires.host), failure);
  auto tensors = with_tensors ? std::make_unique<Line>(std::move(wires.tensors), failure) : nullptr;
  return std::make_shared<GlooBackend>(meeting, std::move(tensors), std::move(host));
}

}  // namespace

std::shared_ptr<Backend> make_gloo(const GroupOptions& options, Store& store) {
  return connect_gloo({options, &store, group_prefix(store, "gloo", options.size)});
}

std::shared_ptr<Backend> make_gloo_for_host(const Meeting& meeting) {
  return connect_gloo(meeting, /*with_tensors=*/false);
}

}  // namespace skein::comm
