// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The boundary between a model and whoever owns its parameters.
//
// A model runs each of its units through `run`. Everything that sharding does (gather before use,
// release after, reduce gradients) and activation checkpointing hang on this one call; model files
// know neither.
//
// It is one autograd Function for all stages. Its inputs are `inputs` plus the unit's trainable
// leaves. Forward runs the block on detached inputs with grad on and keeps the inner graph, or
// drops it (recompute) and keeps the inputs, where a stash says so in host memory. Backward
// acquires the unit, recomputes if dropped, runs autograd::grad over
// the inner graph and hands the leaves' gradients to `add_gradients`; no `.grad` is ever set and no
// parameter hook exists. What the block captures is constant to autograd: every differentiable
// tensor must come in through `inputs` or be a leaf of the unit.
//
// While somebody listens to linear layers (tap.h), backward also hands over what they have seen,
// and units are differentiated though nothing in them trains.

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "skein/tensor/tap.h"

namespace skein::tensor {

class HostStash;

using Tensors = std::vector<at::Tensor>;
// Must give the same outputs when called again with equal inputs (recompute).
using Block = std::function<Tensors(const Tensors& inputs)>;

struct PassOptions {
  // Gradients flow through the pass to what it was given, also where the first units are frozen (a
  // projector before a frozen language model). Alike on all ranks.
  bool differentiable_inputs = false;
};

// A linear layer that is listened to, and the unit that it belongs to.
struct TapPlace {
  int unit = 0;
  Tap* tap = nullptr;
};

class Units {
 public:
  enum class Pass { kForward, kBackward };

  Units() = default;
  Units(const Units&) = delete;
  Units& operator=(const Units&) = delete;
  virtual ~Units() { stop_listening(); }

  virtual Tensors run(int unit, const Block& block, const Tensors& inputs);

  // Called around each forward of a model, through ForwardPass alone. Blocks are run inside, root
  // units anywhere. Whether gradients will be taken is grad mode at the beginning.
  virtual void begin_forward(const PassOptions&) {}
  virtual void end_forward() {}

  // Called around each use of a unit's parameters; whole and valid in between.
  virtual void acquire(int unit, Pass pass) = 0;
  virtual void release(int unit, Pass pass) = 0;
  // The unit's trainable tensors, always in the same order.
  virtual std::span<const at::Tensor> leaves(int unit) = 0;
  // One gradient per leaf, undefined where the loss does not depend on it. Before release(). Nobody
  // else holds them: each can be let go as soon as it was copied.
  virtual void add_gradients(int unit, Tensors gradients) = 0;
  // Drop the inner graph after forward and run the block again in backward?
  virtual bool recompute(int unit) const = 0;
  // Where inputs lie from forward until the block runs again; none: where they are.
  virtual HostStash* stash(int /*unit*/) { return nullptr; }
  // A use was made in forward that backward may come back to.
  virtual void expect_backward(int /*unit*/) {}

  // From here on backward calls the sink for every unit with such a layer, while its parameters are
  // whole. For whoever runs units by Units::run. The taps must outlive this, or stop_listening().
  using TapSink = std::function<void(int unit, std::span<const Tapped> seen)>;
  void listen(const std::vector<TapPlace>& places, TapSink sink);
  void set_tap_sink(TapSink sink) { sink_ = std::move(sink); }
  void stop_listening();
  bool is_listening() const { return !taps_.empty(); }
  // Of a unit; empty: nobody listens there.
  std::span<Tap* const> taps(int unit) const;
  void hand_over(int unit, std::span<const Tapped> seen) const { sink_(unit, seen); }

 private:
  friend class ForwardPass;
  int open_passes_ = 0;
  std::vector<std::vector<Tap*>> taps_;  // by unit
  TapSink sink_;
};

// One run of a model from its first unit to its last, opened by Model::forward and Model::decode.
// Every rank opens the same passes in the same order; inside, ranks may leave out different units.
// Inside another pass it does nothing, so a caller can open one itself to give options.
class ForwardPass {
 public:
  explicit ForwardPass(Units& units, const PassOptions& options = {});
  // Communicates, and may therefore throw; does nothing when an exception is on its way.
  ~ForwardPass() noexcept(false);
  ForwardPass(const ForwardPass&) = delete;
  ForwardPass& operator=(const ForwardPass&) = delete;

 private:
  Units& units_;
  int exceptions_;  // in flight when it began
};

// Calls blocks directly: parameters are whole, gradients are plain autograd's. For evaluation of a
// model that nobody shards, and as the reference in tests.
class PlainUnits final : public Units {
 public:
  Tensors run(int, const Block& block, const Tensors& inputs) override { return block(inputs); }
  void acquire(int, Pass) override {}
  void release(int, Pass) override {}
  std::span<const at::Tensor> leaves(int) override { return {}; }
  void add_gradients(int, Tensors) override {}
  bool recompute(int) const override { return false; }
};

}  // namespace skein::tensor
