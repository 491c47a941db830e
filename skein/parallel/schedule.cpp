// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::parallel {
namespace {

bool contains(const std::vector<int>& list, int unit) {
  return std::ranges::find(list, unit) != list.end();
}

}  // namespace

Schedule::Schedule(std::vector<Unit> units, std::vector<int> forward_order, ScheduleActions actions)
    : units_(std::move(units)),
      order_(std::move(forward_order)),
      actions_(std::move(actions)),
      uses_(units_.size(), 0),
      reduced_(units_.size(), false) {
  for (int unit = 0; unit < std::ssize(units_); ++unit) {
    if (units_[unit].root == contains(order_, unit)) {
      refuse(unit, "the order of forward must hold every block, and no root unit");
    }
  }
}

void Schedule::begin_micro_batch() {
  SKEIN_CHECK(idle(), "a micro-batch begins before the last one or a forward pass has ended");
  drop_blocks();
  micro_batch_ = MicroBatch::kForward;
  passes_.clear();
  std::ranges::fill(uses_, 0);
  std::fill(reduced_.begin(), reduced_.end(), false);
}

void Schedule::end_micro_batch() {
  SKEIN_CHECK(micro_batch_ != MicroBatch::kNone, "no micro-batch is open");
  if (micro_batch_ == MicroBatch::kForward) begin_backward();
  advance(list_.size());
  if (under_way_ >= 0) actions_.finish_reduce(std::exchange(under_way_, -1));
  drop_blocks();
  micro_batch_ = MicroBatch::kNone;
}

void Schedule::begin_forward(bool gradients, bool differentiable_inputs) {
  SKEIN_CHECK(!pass_open_, "a forward pass begins inside another");
  SKEIN_CHECK(micro_batch_ != MicroBatch::kBackward,
              "a forward pass begins after backward has begun: run all forwards of a micro-batch "
              "before its backward, or give them micro-batches of their own");
  pass_open_ = true;
  pass_gradients_ = gradients && micro_batch_ == MicroBatch::kForward;
  if (pass_gradients_) passes_.push_back(differentiable_inputs ? 0 : first_reached_turn());
  list_.clear();
  for (const int unit : order_) list_.push_back({Operation::Kind::kTurn, unit});
  next_ = 0;
  turn_ = -1;
  hold(next_turn(), -1);
}

void Schedule::end_forward() {
  SKEIN_CHECK(pass_open_, "no forward pass is open");
  advance(list_.size());
  pass_open_ = false;
}

void Schedule::pass_blocks() {
  if (pass_open_) advance(list_.size());
}

void Schedule::begin_backward() {
  SKEIN_CHECK(!pass_open_, "backward begins inside a forward pass");
  micro_batch_ = MicroBatch::kBackward;
  list_ = backward_list();
  next_ = 0;
  turn_ = -1;
}

void Schedule::expect_backward(int unit) {
  if (micro_batch_ == MicroBatch::kNone) {
    refuse(unit, "runs with gradients outside of a micro-batch: begin one, or switch them off");
  }
  if (micro_batch_ == MicroBatch::kBackward) {
    refuse(unit, "runs forward after backward has begun: begin another micro-batch first");
  }
  if (!units_[unit].root && !pass_gradients_) {
    refuse(unit, "runs with gradients in a forward pass that began without them");
  }
  ++uses_[unit];
}

void Schedule::acquire(int unit, Pass pass) {
  if (pass == Pass::kBackward) {
    check_backward(unit);
  } else if (!units_[unit].root && !pass_open_) {
    refuse(unit, "is used outside of a forward pass: put a tensor::ForwardPass around forward");
  }
  if (!units_[unit].root && unit != turn_) advance_to_turn(unit, pass);
  actions_.wait(unit);
}

void Schedule::release(int unit, Pass pass) {
  if (pass == Pass::kForward) return;
  --uses_[unit];
  // Reductions whose place in the list has come, of units that backward has left for good.
  while (next_ < list_.size() && list_[next_].kind == Operation::Kind::kReduce &&
         uses_[list_[next_].unit] == 0) {
    advance(next_ + 1);
  }
}

void Schedule::check_backward(int unit) {
  if (micro_batch_ == MicroBatch::kForward) begin_backward();
  if (micro_batch_ == MicroBatch::kNone || uses_[unit] == 0) {
    refuse(unit,
           "is reached by backward, but no forward of this micro-batch has used it (so often)");
  }
  if (reduced_[unit]) {
    refuse(unit,
           "is reached by backward after its gradient was sent: differentiate all passes of a "
           "micro-batch by one backward; root units used before or between blocks must stand "
           "before the last block in the parameter table");
  }
}

void Schedule::advance_to_turn(int unit, Pass pass) {
  const auto is_turn = [unit](const Operation& operation) {
    return operation.kind == Operation::Kind::kTurn && operation.unit == unit;
  };
  const auto found =
      std::find_if(list_.begin() + static_cast<ptrdiff_t>(next_), list_.end(), is_turn);
  if (found == list_.end()) {
    refuse(unit, pass == Pass::kForward
                     ? "is used after later blocks: list each turn of a forward pass in the "
                       "parameter table's forward_order"
                     : "is reached by backward out of turn: differentiate all passes of a "
                       "micro-batch by one backward, and say PassOptions::differentiable_inputs "
                       "where gradients flow through frozen blocks to the pass's inputs");
  }
  advance(static_cast<size_t>(found - list_.begin()) + 1);
}

void Schedule::advance(size_t end) {
  while (next_ < end) carry_out(list_[next_++]);
}

void Schedule::carry_out(const Operation& operation) {
  if (operation.kind == Operation::Kind::kTurn) {
    take_turn(operation.unit);
  } else {
    start_reduce(operation.unit);
  }
}

void Schedule::take_turn(int unit) {
  hold(unit, next_turn());
  actions_.wait(unit);
  turn_ = unit;
}

void Schedule::start_reduce(int unit) {
  if (under_way_ >= 0) actions_.finish_reduce(std::exchange(under_way_, -1));
  actions_.start_reduce(unit);
  under_way_ = unit;
  reduced_[unit] = true;
}

int Schedule::next_turn() const {
  for (size_t i = next_; i < list_.size(); ++i) {
    if (list_[i].kind == Operation::Kind::kTurn) return list_[i].unit;
  }
  return -1;
}

// These two and no other (-1: none).
void Schedule::hold(int unit, int other) {
  std::erase_if(held_, [&](int whole) {
    if (whole == unit || whole == other) return false;
    actions_.wait(whole);
    actions_.drop(whole);
    return true;
  });
  for (const int wanted : {unit, other}) {
    if (wanted < 0 || contains(held_, wanted)) continue;
    actions_.start_gather(wanted);
    held_.push_back(wanted);
  }
}

void Schedule::drop_blocks() { hold(-1, -1); }

bool Schedule::is_last_root(int unit) const {
  return units_[unit].root && std::ranges::all_of(order_, [&](int block) { return block < unit; });
}

// Of a pass whose inputs carry no gradient: the turn of the first trainable unit, or the first
// after a root unit that feeds blocks with what trains.
size_t Schedule::first_reached_turn() const {
  for (size_t turn = 0; turn < order_.size(); ++turn) {
    if (units_[order_[turn]].trainable) return turn;
    for (int unit = 0; unit < order_[turn]; ++unit) {
      if (units_[unit].root && units_[unit].trainable && units_[unit].feeds_blocks) return turn;
    }
  }
  return order_.size();
}

bool Schedule::is_first_turn(size_t turn) const {
  return std::ranges::find(order_, order_[turn]) - order_.begin() == static_cast<ptrdiff_t>(turn);
}

// As backward leaves them.
std::vector<int> Schedule::reduce_order() const {
  std::vector<int> order;
  const auto add_roots = [&](bool last) {
    for (int unit = 0; unit < std::ssize(units_); ++unit) {
      const bool reduces = units_[unit].root && units_[unit].trainable;
      if (reduces && is_last_root(unit) == last) order.push_back(unit);
    }
  };
  add_roots(/*last=*/true);
  for (size_t turn = order_.size(); turn-- > 0;) {
    if (is_first_turn(turn) && units_[order_[turn]].trainable) order.push_back(order_[turn]);
  }
  add_roots(/*last=*/false);
  return order;
}

std::vector<Schedule::Operation> Schedule::backward_list() const {
  std::vector<Operation> list;
  const auto order = reduce_order();
  auto next = order.begin();  // to be reduced
  for (size_t pass = passes_.size(); pass-- > 0;) {
    // The first pass is the last to be left: what only it holds back can go.
    while (pass == 0 && next != order.end() && is_last_root(*next)) {
      list.push_back({Operation::Kind::kReduce, *next++});
    }
    for (size_t turn = order_.size(); turn-- > passes_[pass];) {
      const int unit = order_[turn];
      list.push_back({Operation::Kind::kTurn, unit});
      if (pass == 0 && is_first_turn(turn) && units_[unit].trainable) {
        list.push_back({Operation::Kind::kReduce, *next++});  // it is `unit`
      }
    }
  }
  while (next != order.end()) list.push_back({Operation::Kind::kReduce, *next++});
  return list;
}

void Schedule::refuse(int unit, const std::string& why) const {
  throw InternalError(fmt::format("unit '{}' {}", units_[unit].name, why));
}

}  // namespace skein::parallel
