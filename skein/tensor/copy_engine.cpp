// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/copy_engine.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "skein/core/host_memory.h"

namespace skein::tensor {
namespace {

// About a millisecond of a GPU's link: writing begins soon, and small copies of the loop pass
// between. A power of two, to which torch rounds pinned memory up.
constexpr int64_t kChunkBytes = int64_t{32} << 20;

class HostEngine final : public CopyEngine {
 public:
  explicit HostEngine(bool in_pieces)
      : chunk_bytes_(in_pieces ? kChunkBytes : int64_t{1} << 62) {}  // or all in one

  int64_t chunk_bytes() const override { return chunk_bytes_; }
  int64_t budget() const override { return std::numeric_limits<int64_t>::max(); }
  at::Tensor allocate(int64_t bytes) override {
    return at::empty({bytes}, at::TensorOptions(at::kByte));
  }
  void begin() override {}
  void copy(const at::Tensor& target, const at::Tensor& source) override { target.copy_(source); }
  std::unique_ptr<Mark> mark() override { return nullptr; }

 private:
  int64_t chunk_bytes_;
};

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

class EventMark final : public CopyEngine::Mark {
 public:
  explicit EventMark(const c10::Stream& stream) : event_(stream.device_type()) {
    event_.record(stream);
  }
  bool reached() const override { return event_.query(); }
  void order_caller() const override { event_.block(current_stream(event_.device())); }

 private:
  c10::Event event_;
};

class StreamEngine final : public CopyEngine {
 public:
  StreamEngine(at::Device device, const CopyOptions& options)
      : stream_(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device)),
        options_(options) {}

  int64_t chunk_bytes() const override { return kChunkBytes; }
  // Of what is left when it is first asked: whoever pins memory for good has done so by then.
  // Pinned memory cannot be taken back: a fifth stays for what else the run will need.
  int64_t budget() const override {
    if (!budget_) {
      const auto share = static_cast<int64_t>(available_memory() / 5 * 4) / options_.ranks_here;
      budget_ = std::max<int64_t>(share - options_.left_over, 0);
    }
    return *budget_;
  }
  at::Tensor allocate(int64_t bytes) override {
    const c10::DeviceGuard guard(stream_.device());
    return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  }
  void begin() override {
    c10::Event now(stream_.device_type());
    now.record(current_stream(stream_.device()));
    now.block(stream_);
  }
  void copy(const at::Tensor& target, const at::Tensor& source) override {
    const c10::StreamGuard guard(stream_);
    target.copy_(source, /*non_blocking=*/true);
  }
  std::unique_ptr<Mark> mark() override { return std::make_unique<EventMark>(stream_); }

 private:
  c10::Stream stream_;
  CopyOptions options_;
  mutable std::optional<int64_t> budget_;
};

}  // namespace

std::shared_ptr<CopyEngine> make_copy_engine(at::Device device, const CopyOptions& options) {
  if (device.is_cpu()) return std::make_shared<HostEngine>(options.in_pieces);
  return std::make_shared<StreamEngine>(device, options);
}

}  // namespace skein::tensor
