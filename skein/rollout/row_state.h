// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a device knows of the texts that go on, a row for each: their last tokens, and where their
// keys lie. A drawn token stays there and is read by the next pass; the host hears of it later.
//
// Tensors stay where they are, so that a pass can be recorded once (ops/decode/device_graph.h).

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <span>

#include "skein/ops/decode/sampling.h"

namespace skein::rollout {

// Numbers on their way to the host.
struct OnTheWay {
  at::Tensor tokens, log_probs;           // (R), to be read once they have arrived
  std::shared_ptr<c10::Event> arrived{};  // null: they are there
};

class RowState {
 public:
  struct Size {
    int64_t rows = 0, pages_per_row = 0;
    int64_t vocabulary = 0;  // where draws depend on what a text holds; else 0
  };
  RowState(at::Device device, const Size& size);

  const Size& size() const { return size_; }

  struct Row {
    int64_t position = 0;  // of the last token
    uint64_t key = 0, sample = 0;
    std::span<const int32_t> pages{};
  };
  // Before a pass of `count` rows; those behind `rows` compute for nobody.
  void tell(std::span<const Row> rows, int64_t count);
  // The rows are those that were at these places, in this order.
  void keep(std::span<const int64_t> places);
  // What the texts of some rows hold, for draws that depend on it.
  void see(int64_t first, std::span<const std::span<const int64_t>> texts);

  // Of the first `count` rows.
  at::Tensor tokens(int64_t count) const { return tokens_.narrow(0, 0, count); }
  at::Tensor positions(int64_t count) const { return numbers(kPositions, count); }
  at::Tensor pages(int64_t count) const;
  ops::Draws draws(int64_t count) const;

  // Of rows `first` and on; seen is undefined where nobody asks for it.
  at::Tensor seen(int64_t first, int64_t count) const;
  void put(int64_t first, const ops::Drawn& drawn);
  OnTheWay to_host(int64_t first, int64_t count) const;

 private:
  enum Kind { kPositions, kKeys, kSamples, kNumKinds };
  static constexpr int64_t kBytesOfNumbers = int64_t{kNumKinds} * 8;  // of a row
  at::Tensor numbers(Kind kind, int64_t count) const;

  Size size_;
  at::Device device_;
  at::Tensor told_;                // bytes: numbers of all rows, kind by kind, then their pages
  at::Tensor tokens_, log_probs_;  // (rows)
  at::Tensor seen_;                // (rows, vocabulary), or undefined
};

}  // namespace skein::rollout
