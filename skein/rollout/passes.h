// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Private to this folder: the passes of a model over the texts of a generation, on the device.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "skein/model/model.h"
#include "skein/ops/decode/device_graph.h"
#include "skein/ops/decode/sampling.h"
#include "skein/rollout/row_state.h"
#include "skein/rollout/text.h"
#include "skein/tensor/units.h"

namespace skein::rollout {

class Passes {
 public:
  Passes(const model::Model& model, tensor::Units& units, at::Device device);

  const model::Model& model() const { return model_; }
  model::KvCache& cache() { return cache_; }
  bool is_cuda() const { return device_.is_cuda(); }

  struct Setting {
    SamplingOptions sampling{};
    int64_t rows = 0, pages_per_row = 0;
    bool records = true;  // false: passes are collective
  };
  // Before a generation. Memory that is large enough stays.
  void begin(const Setting& setting);
  // Nothing that knows where weights lie stays.
  void forget();

  // Tokens `from` to `to` of a text that has pages for them.
  struct Piece {
    const Text* text = nullptr;
    int64_t from = 0, to = 0;
  };
  // Reads pieces of texts: several from their first tokens on, or a later piece of one. Returns the
  // hidden states of their last tokens (n, C).
  at::Tensor read(std::span<const Piece> pieces);
  // Texts become the rows from `first` on: each draws a token behind its last one, whose hidden
  // state is row owners[i] of `hidden`.
  OnTheWay join(int64_t first, std::span<const Text* const> texts, const at::Tensor& hidden,
                std::span<const int64_t> owners);
  // What texts share of a page that is not full becomes each one's own.
  void copy_pages(std::span<const int64_t> from, std::span<const int64_t> to);
  // The rows are those that were at these places.
  void keep(std::span<const int64_t> places) { state_->keep(places); }
  // Each row's last token is read, and the next one drawn.
  OnTheWay step(std::span<const Text* const> texts);
  // For ranks that keep others company.
  void idle();

 private:
  struct Recorded {
    bool was_run = false;  // once: the first run of a shape prepares what cannot be recorded
    ops::DeviceGraph graph{};
  };

  void decode(int64_t count, std::span<const int64_t> lengths);
  // Recorded where that can be done.
  void decode_again(int64_t count);
  void tell(std::span<const Text* const> texts, int64_t count);

  const model::Model& model_;
  tensor::Units& units_;
  at::Device device_;
  model::KvCache cache_;
  std::optional<RowState> state_;
  ops::SamplingOptions draws_;
  bool records_ = false;
  std::map<int64_t, Recorded> recorded_;          // by rows
  ops::DeviceGraph* memory_of_graphs_ = nullptr;  // the first that was recorded
};

}  // namespace skein::rollout
