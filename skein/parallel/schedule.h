// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// In which order do parameters and gradients travel in a micro-batch?
//
// One static list, the same on all ranks, of turns (a block's parameters are whole) and reductions
// (a unit's gradient is summed). Forward: every pass takes the blocks' turns in the order of
// forward. Backward: the turns of all passes with gradients in reverse, the last pass first,
// without those that no gradient can reach (a frozen beginning); a unit's reduction follows its
// last turn, root units behind all blocks (an untied head) come before the first pass's turns,
// other root units last.
//
// A use only says how far the list must have been carried out. What a rank does not use it carries
// out in passing, for the others' sake: it takes part in the gather, and adds zeros to the sum. So
// ranks may skip different blocks, and all issue the same collectives in the same order.
//
// At a turn its block and the next turn's are whole, no other: a gather runs one block ahead, and
// the block at which forward turns into backward is gathered once. One reduction is under way while
// the next unit's gradient is being filled.
//
// Pure bookkeeping: what "gather" and "reduce" do is the owner's. Uses that the list cannot serve
// are InternalErrors that name the unit and say what to do.

#include <functional>
#include <string>
#include <vector>

#include "skein/tensor/units.h"

namespace skein::parallel {

struct ScheduleActions {
  std::function<void(int unit)> start_gather;
  std::function<void(int unit)> wait;  // parameters usable afterwards; again: nothing
  std::function<void(int unit)> drop;  // free what was gathered
  std::function<void(int unit)> start_reduce;
  std::function<void(int unit)> finish_reduce;
};

class Schedule {
 public:
  using Pass = tensor::Units::Pass;

  struct Unit {
    std::string name;
    bool root = false;
    bool trainable = true;
    // Of a root unit: is something that trains in it used before blocks behind it? Of a tied
    // embedding and head the embedding may be frozen.
    bool feeds_blocks = true;
  };

  // `forward_order`: the block of each turn of a forward pass; holds every block at least once.
  Schedule(std::vector<Unit> units, std::vector<int> forward_order, ScheduleActions actions);

  void begin_micro_batch();
  void end_micro_batch();  // carries out the rest of the list and finishes everything

  // Passes outside of a micro-batch carry no gradients.
  void begin_forward(bool gradients, bool differentiable_inputs);
  void end_forward();
  // No block is used any more in the pass that is open.
  void pass_blocks();

  void acquire(int unit, Pass pass);
  void release(int unit, Pass pass);
  void expect_backward(int unit);  // a use in forward that backward may come back to

  // Frees the block that the last pass has left whole.
  void drop_blocks();
  // Neither a micro-batch nor a pass is open.
  bool idle() const { return micro_batch_ == MicroBatch::kNone && !pass_open_; }

 private:
  enum class MicroBatch { kNone, kForward, kBackward };  // which half of one is open
  struct Operation {
    enum class Kind { kTurn, kReduce } kind;
    int unit;
  };

  void begin_backward();
  void check_backward(int unit);
  std::vector<Operation> backward_list() const;
  std::vector<int> reduce_order() const;
  bool is_last_root(int unit) const;  // behind all blocks
  size_t first_reached_turn() const;
  bool is_first_turn(size_t turn) const;  // of its block

  void advance_to_turn(int unit, Pass pass);
  void advance(size_t end);
  void carry_out(const Operation& operation);
  void take_turn(int unit);
  void start_reduce(int unit);
  int next_turn() const;
  void hold(int unit, int other);
  [[noreturn]] void refuse(int unit, const std::string& why) const;

  std::vector<Unit> units_;
  std::vector<int> order_;
  ScheduleActions actions_;

  MicroBatch micro_batch_ = MicroBatch::kNone;
  bool pass_open_ = false;
  bool pass_gradients_ = false;
  std::vector<size_t> passes_;  // those of the micro-batch with gradients: the first turn reached

  std::vector<Operation> list_;  // of the pass or the backward under way
  size_t next_ = 0;              // the first of them not yet carried out
  int turn_ = -1;                // the block whose turn it is
  std::vector<int> held_;        // blocks that are whole or on their way: two at most
  std::vector<int> uses_;        // by unit: those that backward has not come back to
  std::vector<bool> reduced_;    // by unit: the reduction of this micro-batch has begun
  int under_way_ = -1;           // the unit being reduced
};

}  // namespace skein::parallel
