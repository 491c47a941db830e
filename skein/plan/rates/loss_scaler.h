// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// By what is the loss of a float16 run multiplied, and when does that change?
//
// Small gradients vanish in float16 and large ones overflow. Backward runs on a loss times the
// scale; the optimizer divides by it again. An update whose gradient is not finite is left out, and
// the scale falls; after a while without one it rises. PyTorch's rule halves at every such update;
// DeepSpeed's forgives some (hysteresis) and has a floor.
//
// A pure state machine: every rank has one, feeds it what all ranks know, and gets the same scales.

#include <cstdint>

#include "skein/config/run_config.h"

namespace skein::plan {

// All that a checkpoint has to hold.
struct LossScaleState {
  double scale = 1;
  // What the scale began at, and the rule: a run that is continued with others begins anew. 0: an
  // older program did not note them.
  double first_scale = 0;
  config::LossScaleRule rule = config::LossScaleRule::kPyTorch;
  int64_t clean_steps = 0;      // since the last overflow
  int64_t hysteresis_left = 1;  // the overflow that halves, counted down
  int64_t num_skipped = 0;      // updates that were left out, in the whole run

  bool operator==(const LossScaleState&) const = default;
};

class LossScaler {
 public:
  // Where versions of DeepSpeed differ, `compat` decides: since 0.17 a scale doubles one step
  // later.
  LossScaler(const config::LossScaleConfig& config, config::DsCompat compat);

  double scale() const { return state_.scale; }
  // A fixed one never moves, and an overflow means that something is wrong.
  bool is_fixed() const { return config_.loss_scale > 0; }

  // One step has ended. Throws UserError, with advice, when the scale can fall no further.
  void update(bool overflow);
  // One step has ended, and its update was left out for a reason that no scale helps against.
  void leave_out() { ++state_.num_skipped; }

  const LossScaleState& state() const { return state_; }
  // Goes on from there where the configuration is that of the state. Else it wins: a fixed scale,
  // another first one or another rule; what was counted of the run stays.
  void restore(const LossScaleState& state);

 private:
  bool by_deepspeed() const { return config_.loss_scaler == config::LossScaleRule::kDeepSpeed; }
  void fall();
  void rise();

  config::LossScaleConfig config_;
  config::DsCompat compat_;
  LossScaleState state_;
};

}  // namespace skein::plan
