// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/copy_stream.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace skein::tensor {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Mark::Mark(const c10::Stream& stream) : event_(std::make_shared<c10::Event>(stream.device_type())) {
  event_->record(stream);
}

bool Mark::is_reached() const { return !event_ || event_->query(); }

void Mark::wait() const {
  if (event_) event_->synchronize();
}

void Mark::order_caller() const {
  if (event_) event_->block(current_stream(event_->device()));
}

Mark mark_of_caller(at::Device device) {
  return device.is_cpu() ? Mark() : Mark(current_stream(device));
}

CopyStream::CopyStream(at::Device device) {
  if (!device.is_cpu()) {
    stream_ = c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
  }
}

void CopyStream::follow(const Mark& mark) {
  const c10::OptionalStreamGuard guard(stream_);
  mark.order_caller();
}

void CopyStream::copy(const at::Tensor& target, const at::Tensor& source) {
  const c10::OptionalStreamGuard guard(stream_);
  target.copy_(source, /*non_blocking=*/true);
}

void CopyStream::copy_and_keep(const at::Tensor& target, const at::Tensor& source) {
  copy(target, source);
  if (!stream_) return;
  for (const auto& side : {target, source}) {
    if (!side.is_cpu()) side.record_stream(*stream_);
  }
}

Mark CopyStream::mark() const { return stream_ ? Mark(*stream_) : Mark(); }

}  // namespace skein::tensor
