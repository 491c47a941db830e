// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// NCCL ranks, one GPU each: built when CUDA is on.
//
// All steps of a collective run on one side stream, in program order; waiting makes the current
// stream run after them. NCCL's own sums round 16-bit values at every hop, so those travel as an
// all-to-all, the same bytes, and are summed here in fp32; between nodes that would be L times the
// bytes for L ranks a node, so that sums go by node there (node_sums.cpp). The order of the other
// sums is NCCL's. Run at size 1, read for N.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "skein/board/board.h"
#include "skein/comm/backend.h"
#include "skein/comm/c10d_error.h"
#include "skein/comm/store_adapter.h"
#include "skein/core/error.h"

namespace skein::comm {
namespace {

bool is_short_float(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// Ends calls on the rank's board once their events have passed.
//
// Streams wait for works and the host does not, so nobody else sees a collective end. The calls of
// a group run on one stream: they end in the order in which they were added.
class CallWatch {
 public:
  using Event = at::cuda::CUDAEvent;

  // The thread starts with the first call of a process that has a board.
  void add(uint64_t call, std::shared_ptr<const Event> done) {
    if (call == 0) return;
    const std::lock_guard lock(mutex_);
    pending_.push_back({call, std::move(done)});
    if (pending_.size() > kMostPending) end_passed();  // the board has room for 256
    if (!thread_.joinable()) thread_ = std::jthread([this](std::stop_token stop) { watch(stop); });
  }

  void stop() { thread_ = {}; }

 private:
  static constexpr size_t kMostPending = 64;
  static constexpr std::chrono::milliseconds kPeriod{100};

  struct Pending {
    uint64_t call;
    std::shared_ptr<const Event> done;
  };

  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      end_passed();
      woken_.wait_for(lock, stop, kPeriod, [] { return false; });
    }
  }

  // With the lock held. Asking an event must not break a capture of another thread. A device that
  // has failed answers with an error: its rank meets the same one and ends, inside these calls.
  void end_passed() try {
    const c10::cuda::CUDAStreamCaptureModeGuard guard(cudaStreamCaptureModeThreadLocal);
    while (!pending_.empty() && pending_.front().done->query()) {
      board::end_call(pending_.front().call);
      pending_.pop_front();
    }
  } catch (const c10::Error&) {
    pending_.clear();
  }

  std::mutex mutex_;
  std::condition_variable_any woken_;
  std::deque<Pending> pending_;
  std::jthread thread_;  // last: it uses the others
};

class NcclBackend final : public Backend {
 public:
  NcclBackend(Meeting meeting, c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl,
              std::shared_ptr<Backend> host)
      : Backend(meeting.options.rank, meeting.options.size),
        nccl_(std::move(nccl)),
        host_(std::move(host)),
        side_(c10::cuda::getStreamFromPool(
            /*isHighPriority=*/true, static_cast<c10::DeviceIndex>(meeting.options.device_index))),
        meeting_(std::move(meeting)) {}

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) override {
    return issue({"all_gather", whole.nbytes(), call}, {whole, shard},
                 [&] { gather(whole, shard); });
  }

  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) override {
    return issue({"reduce_scatter", whole.nbytes(), call}, {whole, shard},
                 [&] { scatter(shard, whole); });
  }

  Work all_reduce(const at::Tensor& whole, uint64_t call) override {
    return issue({"all_reduce", whole.nbytes(), call}, {whole}, [&] {
      const auto shard = whole.narrow(0, rank() * (whole.numel() / size()), whole.numel() / size());
      scatter(shard, whole);
      gather(whole, shard);
    });
  }

  Work broadcast(const at::Tensor& tensor, int root, uint64_t call) override {
    return issue({"broadcast", tensor.nbytes(), call}, {tensor}, [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.asyncOp = false;
      nccl_->broadcast(tensors, options);
    });
  }

  Work gather_host(HostBytes all, uint64_t call) override {
    return host_->gather_host(std::move(all), call);
  }

  // The side stream is current while `steps` runs: the streams of other groups begin behind it, and
  // it goes on behind those that are waited for. So the kernels of all groups have one order on the
  // device, the same on every rank, and never wait for each other's peers.
  Work compose(const Call& call, std::vector<at::Tensor> tensors,
               std::function<void()> steps) override {
    return issue(call, std::move(tensors), steps);
  }

  std::shared_ptr<Backend> split(const std::vector<int>& members) override;

  bool knows_nodes(at::ScalarType type) const override { return !is_short_float(type); }

  void shutdown() override {
    calls_.stop();
    // Left to its destructor, the group would abort its communicators.
    nccl_->shutdown();
    nccl_.reset();
    host_->shutdown();
  }

 private:
  // asyncOp = false below: c10d then issues on the current stream, which is ours.
  void gather(const at::Tensor& whole, const at::Tensor& shard) {
    auto out = whole, in = shard;
    c10d::AllgatherOptions options;
    options.asyncOp = false;
    nccl_->_allgather_base(out, in, options);
  }

  void scatter(const at::Tensor& shard, const at::Tensor& whole) {
    auto out = shard, in = whole;
    if (is_short_float(whole.scalar_type())) return scatter_short(out, in);
    c10d::ReduceScatterOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    options.asyncOp = false;
    nccl_->_reduce_scatter_base(out, in, options);
  }

  void scatter_short(at::Tensor& shard, at::Tensor& whole) {
    auto received = at::empty({whole.numel()}, whole.options());
    std::vector<int64_t> equal_parts;
    c10d::AllToAllOptions options;
    options.asyncOp = false;
    nccl_->alltoall_base(received, whole, equal_parts, equal_parts, options);
    at::sum_out(shard, received.view({size(), shard.numel()}), at::IntArrayRef{0});
  }

  // On the side stream. A captured event never passes: what is captured has not begun.
  void watch(uint64_t call, std::shared_ptr<const CallWatch::Event> done) {
    if (call == 0) return;
    if (c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None) {
      calls_.add(call, std::move(done));
    } else {
      board::end_call(call);
    }
  }

  // `tensors` stay alive until the work has been waited for: only then is the caller's stream
  // behind their last use.
  Work issue(const Call& call, std::vector<at::Tensor> tensors,
             const std::function<void()>& steps) {
    try {
      at::cuda::CUDAEvent ready;
      ready.record(c10::cuda::getCurrentCUDAStream(side_.device_index()));
      ready.block(side_);
      const c10::cuda::CUDAStreamGuard guard(side_);
      steps();
      auto done = std::make_shared<at::cuda::CUDAEvent>();
      done->record(side_);
      watch(call.number, done);
      return Work([done, tensors = std::move(tensors), device = side_.device_index()] {
        done->block(c10::cuda::getCurrentCUDAStream(device));
      });
    } catch (const std::exception& error) {
      throw CommError(fmt::format("{} of {} bytes on rank {} of {} could not be issued: {}",
                                  call.operation, call.bytes, rank(), size(), reason_of(error)));
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
  std::shared_ptr<Backend> host_;
  c10::cuda::CUDAStream side_;
  CallWatch calls_;
  Meeting meeting_;
  int splits_ = 0;
};

// Defaults that the user's environment overrides.
void set_nccl_environment() {
  // A failed or late collective ends the process: nothing is repaired, results may be garbage.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3", 0);
  // c10d would wait a minute for its own dump before it ends the process.
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  // c10d's monitor thread polls the store, and the launcher watches the ranks anyway.
  setenv("TORCH_NCCL_ENABLE_MONITORING", "0", 0);
}

std::shared_ptr<Backend> connect_nccl(const Meeting& meeting) {
  const auto& options = meeting.options;
  auto host = options.size == 1 ? make_single() : make_gloo_for_host(meeting);
  try {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(options.device_index));
    const c10::cuda::CUDAGuard guard(device);
    auto nccl_options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    nccl_options->timeout = options.timeout;
    auto adapter = c10::make_intrusive<StoreAdapter>(*meeting.store, meeting.prefix + "tensors/",
                                                     options.timeout);
    auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(adapter, options.rank, options.size,
                                                            nccl_options);
    nccl->setBoundDeviceId(device);
    nccl->eagerConnectSingleDevice(device);
    return std::make_shared<NcclBackend>(meeting, std::move(nccl), std::move(host));
  } catch (const std::exception& error) {
    throw CommError(fmt::format("rank {} of {} could not join the others over NCCL on cuda:{}: {}",
                                options.rank, options.size, options.device_index,
                                reason_of(error)));
  }
}

std::shared_ptr<Backend> NcclBackend::split(const std::vector<int>& members) {
  return connect_nccl(meeting_.split(members, splits_++));
}

}  // namespace

std::shared_ptr<Backend> make_nccl(const GroupOptions& options, Store& store) {
  if (options.device_index < 0) {
    throw UserError("the nccl backend needs a GPU for every rank: use the gloo backend on CPU");
  }
  set_nccl_environment();
  return connect_nccl({options, &store, group_prefix(store, "nccl", options.size)});
}

}  // namespace skein::comm
