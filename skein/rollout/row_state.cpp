// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/row_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>

#include "skein/core/error.h"
#include "skein/rollout/host_numbers.h"

namespace skein::rollout {

RowState::RowState(at::Device device, const Size& size)
    : size_(size),
      device_(device),
      told_(at::zeros({size.rows * (kBytesOfNumbers + size.pages_per_row * 4)},
                      at::TensorOptions(device).dtype(at::kByte))),
      tokens_(at::zeros({size.rows}, at::TensorOptions(device).dtype(at::kLong))),
      log_probs_(at::zeros({size.rows}, at::TensorOptions(device).dtype(at::kDouble))) {
  if (size.vocabulary > 0) {
    seen_ = at::zeros({size.rows, size.vocabulary}, at::TensorOptions(device).dtype(at::kByte));
  }
}

at::Tensor RowState::numbers(Kind kind, int64_t count) const {
  return told_.narrow(0, kind * size_.rows * 8, count * 8).view(at::kLong);
}

at::Tensor RowState::pages(int64_t count) const {
  const auto begin = size_.rows * kBytesOfNumbers, bytes = size_.pages_per_row * 4;
  return told_.narrow(0, begin, count * bytes).view(at::kInt).view({count, size_.pages_per_row});
}

ops::Draws RowState::draws(int64_t count) const {
  return {.keys = numbers(kKeys, count),
          .samples = numbers(kSamples, count),
          .positions = positions(count),
          .seen = seen(0, count)};
}

at::Tensor RowState::seen(int64_t first, int64_t count) const {
  return seen_.defined() ? seen_.narrow(0, first, count) : at::Tensor();
}

// One copy: what lies behind the pages of `count` rows is not needed.
void RowState::tell(std::span<const Row> rows, int64_t count) {
  SKEIN_CHECK(std::ssize(rows) <= count && count <= size_.rows, "rows of the state");
  const auto width = static_cast<size_t>(size_.pages_per_row);
  const auto bytes = size_.rows * kBytesOfNumbers + count * size_.pages_per_row * 4;
  const auto host = host_empty({bytes}, at::kByte, device_);
  auto* const begin = host.mutable_data_ptr<uint8_t>();
  std::memset(begin, 0, static_cast<size_t>(bytes));
  auto* const numbers = reinterpret_cast<int64_t*>(begin);
  auto* const pages = reinterpret_cast<int32_t*>(numbers + kNumKinds * size_.rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = [&](Kind kind) { return static_cast<size_t>(kind * size_.rows) + i; };
    numbers[at(kPositions)] = rows[i].position;
    numbers[at(kKeys)] = static_cast<int64_t>(rows[i].key);
    numbers[at(kSamples)] = static_cast<int64_t>(rows[i].sample);
    SKEIN_CHECK(rows[i].pages.size() <= width, "a text has more pages than a row");
    std::ranges::copy(rows[i].pages, pages + i * width);
  }
  told_.narrow(0, 0, bytes).copy_(host, /*non_blocking=*/true);
}

void RowState::keep(std::span<const int64_t> places) {
  if (places.empty()) return;
  const auto from = to_device(places, device_);
  const auto move = [&](const at::Tensor& all) {
    all.narrow(0, 0, from.numel()).copy_(all.index_select(0, from));
  };
  move(tokens_);
  if (seen_.defined()) move(seen_);
}

void RowState::see(int64_t first, std::span<const std::span<const int64_t>> texts) {
  if (!seen_.defined()) return;
  for (const auto text : texts) {
    seen_[first].zero_();
    seen_[first].index_fill_(0, to_device(text, device_), 1);
    ++first;
  }
}

void RowState::put(int64_t first, const ops::Drawn& drawn) {
  const auto count = drawn.tokens.size(0);
  tokens_.narrow(0, first, count).copy_(drawn.tokens);
  log_probs_.narrow(0, first, count).copy_(drawn.log_probs);
}

OnTheWay RowState::to_host(int64_t first, int64_t count) const {
  OnTheWay found{.tokens = host_empty({count}, at::kLong, device_),
                 .log_probs = host_empty({count}, at::kDouble, device_)};
  found.tokens.copy_(tokens_.narrow(0, first, count), /*non_blocking=*/true);
  found.log_probs.copy_(log_probs_.narrow(0, first, count), /*non_blocking=*/true);
  if (device_.is_cuda()) {
    found.arrived = std::make_shared<c10::Event>(device_.type());
    found.arrived->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  return found;
}

}  // namespace skein::rollout
