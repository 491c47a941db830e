// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// DDP, ZeRO 1-3 and whatever else a stage (stage.h) says: one mechanism.
//
// Owns the flat memory of a parameter table, puts leaves into the model's slots, and sits behind
// the unit boundary: it knows when a unit's parameters must be whole and when its gradient is
// complete, and moves both between ranks. It knows no model.
//
// The life of a step, with K micro-batches:
//   for each: begin_micro_batch(i, K); any number of forward passes; one backward over all of
//             them; end_micro_batch()
//   gradient_norm(); optimizer.step(); publish()
// Every rank makes the same calls. Gradients are sums over ranks, never means. Inside a pass ranks
// may use different blocks, or one several times (schedule.h).
//
// Where nothing trains but linear layers are listened to (tensor/tap.h), micro-batches are the
// same, their passes have PassOptions::differentiable_inputs, and nothing is reduced.
//
// Without gradients: hold_roots() or hold_whole(), then forward passes. Several can live side by
// side on one group (a policy and its reference). Where two of them train in one backward and their
// ranks skip blocks, each needs a group of its own.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "skein/comm/group.h"
#include "skein/optim/offload.h"
#include "skein/optim/optimizer.h"
#include "skein/parallel/schedule.h"
#include "skein/parallel/segment.h"
#include "skein/tensor/parameter_table.h"
#include "skein/tensor/units.h"
#include "skein/trace/trace.h"

namespace skein::parallel {

struct ShardOptions {
  Stage stage;
  bool recompute = false;                    // activation checkpointing of every block
  std::shared_ptr<tensor::HostStash> stash;  // of what recompute keeps; none: it stays
  bool fp32_gradients = false;  // else the weights' dtype; needed when micro-batches accumulate
  bool inference = false;       // nothing trains: no gradients, no ranges for an optimizer
  at::Device device = at::kCPU;
  optim::Offload offload{};
  bool pin_memory = true;  // of what a GPU's rank keeps in host memory
  optim::DiskOptions disk{};
  int update_threads = 0;  // of the host's updates; 0: those of torch
};

class Sharded final : public tensor::Units {
 public:
  // Collective. The table and what its slots point at must outlive this.
  Sharded(const tensor::ParameterTable& table, const ShardOptions& options, comm::Group group);
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  void begin_micro_batch(int64_t index, int64_t count);
  void end_micro_batch();

  // While a Hold lives, units stay whole and forward passes without gradients may run, outside of
  // micro-batches: for an evaluation the root units, for generation all. Collective. Where all are
  // whole, passes communicate nothing, and ranks need not run equally many.
  class Hold;
  [[nodiscard]] Hold hold_roots();
  [[nodiscard]] Hold hold_whole();

  // The global norm of the gradient, as a float64 scalar on the device, and what the optimizer is
  // to do with what lies in memory: multiply it by `scale`, clip by min(1, max_norm / (norm +
  // 1e-6)), and skip the update when the norm is not finite.
  struct NormOptions {
    double max_norm = 0;  // 0: no clipping
    double scale = 1;     // the gradient is this times what lies in memory
  };
  struct GradientNorm {
    at::Tensor norm;  // of the gradient, not of what lies in memory
    optim::Optimizer::Decision decision;
    at::Tensor unit_squares;  // (units) of what this rank's shard holds: where did a NaN come from?
  };
  GradientNorm gradient_norm(const NormOptions& options);
  // Units whose gradient held a NaN or an infinity, in forward order. Collective.
  std::vector<std::string> non_finite_units(const GradientNorm& norm);

  // The optimizer has updated the owned ranges, or the host is about to: make the new weights
  // known.
  void publish();

  // While set, called when the gradient of a range (an index of owned_ranges()) is complete, in the
  // step's backward; its square is part of gradient_norm() all the same.
  using OnGradient = std::function<void(size_t range)>;
  void set_on_gradient(OnGradient on_gradient) { on_gradient_ = std::move(on_gradient); }
  // Does the host update ranges?
  bool has_host_ranges() const { return side_ != nullptr && options_.offload.any(); }

  // What an optimizer is built over: one range per trainable segment.
  std::vector<optim::OwnedRange> owned_ranges() const;

  // What this rank writes into a checkpoint and reads from one: its shard, at every stage. The
  // states are those of the optimizer that was built over owned_ranges(). Weights may be read, or
  // set, until the next pass.
  using States = std::vector<optim::RangeStates>;
  std::vector<tensor::TensorSlice> slices_to_save(Access access);
  std::vector<tensor::TensorSlice> slices_to_save(const States& states) const;
  // All that it keeps.
  std::vector<tensor::TensorSlice> kept_slices(Access access);
  std::vector<tensor::TensorSlice> kept_slices(const States& states) const;
  // What was copied of slices (Access::kCopy) is what was written there; else throws IoError.
  void compare_copied() {
    if (side_ && side_->parameters) side_->parameters->compare();
  }
  // Every rank has filled its slices_to_save(): brings the other shards of what is kept whole.
  // Collective.
  void gather_loaded();
  void gather_loaded(const States& states);

  // This rank's part of the summed gradient, after the last end_micro_batch(): as it lies in
  // memory, neither scaled nor clipped.
  std::vector<tensor::TensorSlice> gradient_slices() const;

  // Keyed first values for every parameter, or for those of which `which` says so; any split over
  // ranks gives the same.
  void initialise(uint64_t seed,
                  const std::function<bool(const tensor::Parameter&)>& which = nullptr);

  tensor::FlatMemory& memory() { return *memory_; }
  comm::Group& group() { return group_; }

  // tensor::Units
  void begin_forward(const tensor::PassOptions& options) override;
  void end_forward() override;
  void expect_backward(int unit) override { schedule_.expect_backward(unit); }
  void acquire(int unit, Pass pass) override;
  void release(int unit, Pass pass) override;
  std::span<const at::Tensor> leaves(int unit) override { return unit_leaves_[unit]; }
  void add_gradients(int unit, tensor::Tensors gradients) override;
  bool recompute(int unit) const override;
  tensor::HostStash* stash(int) override { return options_.stash.get(); }

 private:
  using StateSelector = std::function<tensor::Range(const Segment&)>;

  template <typename Action>
  void for_segments(int unit, Action action);
  std::vector<Segment*> trainable_segments();
  std::vector<const Segment*> trainable_segments() const;
  std::vector<tensor::TensorSlice> state_slices(const States& states,
                                                const StateSelector& want) const;
  std::vector<Schedule::Unit> scheduled_units() const;
  ScheduleActions schedule_actions();
  // Does this unit's gradient travel in this micro-batch?
  bool reduces_now(int unit) const;
  bool reduces_every_micro_batch(int unit) const;
  void start_reduce(int unit);
  void finish_reduce(int unit);
  std::vector<Medium> media_of_states() const;  // by unit
  void open_disk(const std::vector<tensor::SegmentLayout>& layouts);
  // New weights that the host makes are told in their order, by all ranks alike: those that the
  // unit needs are waited for, others follow as they come.
  void publish_for(int unit);
  void publish_rest();
  // Nothing of the last update is on its way any more.
  void finish_updates();
  void gather_state(const at::Tensor& data, tensor::Range own);

  // Of sharded parameters: what stays whole between passes.
  enum class Whole { kNothing, kRoots, kAll };
  bool is_held(int unit, Whole whole) const;
  void gather(Whole whole);
  void let_go(Whole whole);
  // Root units behind the blocks whose weights the host may still be making: gathered when the last
  // block is, so that the blocks do not wait for the end of the update. Alike on all ranks.
  bool is_deferred(int unit) const;
  int last_block() const;  // -1: there is none
  void gather_deferred();

  tensor::ParameterTable table_;
  ShardOptions options_;
  comm::Group group_;
  std::shared_ptr<tensor::FlatMemory> memory_;
  std::shared_ptr<optim::HostSide> side_;  // null: nothing is offloaded
  std::vector<Segment> segments_;
  std::deque<Segment*> unpublished_;
  std::vector<Segment*> deferred_;
  OnGradient on_gradient_;
  std::vector<tensor::Tensors> unit_leaves_;  // trainable, by unit
  Schedule schedule_;
  int64_t micro_batch_ = 0;
  int64_t num_micro_batches_ = 1;
  Whole whole_ = Whole::kNothing;
  Whole whole_before_step_ = Whole::kNothing;
  trace::Point use_began_;  // of the unit that is in use
};

class [[nodiscard]] Sharded::Hold {
 public:
  // Waits for gathers, and may therefore throw; does nothing when an exception is on its way.
  ~Hold() noexcept(false);
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  friend class Sharded;
  Hold(Sharded& sharded, Whole whole);

  Sharded& sharded_;
  Whole before_;
  int exceptions_;  // in flight when it began
};

}  // namespace skein::parallel
