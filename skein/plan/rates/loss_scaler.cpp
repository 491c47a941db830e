// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rates/loss_scaler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "skein/core/error.h"

namespace skein::plan {
namespace {

// PyTorch's rule has no floor and would leave out updates for ever. Here even the gradient itself
// does not fit into float16.
constexpr double kLeastScale = 0x1p-16;

[[noreturn]] void stop_at_floor(double scale) {
  throw UserError(fmt::format(
      "float16: the gradient still overflows at a loss scale of {}: the values of this model, not "
      "the scale, are too large. The same command with bf16=true goes on from the last checkpoint, "
      "with dtype=float32 and --fresh it starts over; or lower learning_rate",
      scale));
}

}  // namespace

LossScaler::LossScaler(const config::LossScaleConfig& config, config::DsCompat compat)
    : config_(config), compat_(compat) {
  state_.scale =
      is_fixed() ? config.loss_scale : std::exp2(static_cast<double>(config.initial_scale_power));
  state_.first_scale = state_.scale;
  state_.rule = config.loss_scaler;
  state_.hysteresis_left = config.hysteresis;
}

void LossScaler::restore(const LossScaleState& saved) {
  const bool is_same = saved.first_scale == 0 ||
                       (saved.first_scale == state_.first_scale && saved.rule == state_.rule);
  state_.num_skipped = saved.num_skipped;
  if (is_fixed() || !is_same) return;
  state_.scale = saved.scale;
  state_.clean_steps = saved.clean_steps;
  state_.hysteresis_left = std::min(saved.hysteresis_left, config_.hysteresis);
}

void LossScaler::update(bool overflow) {
  if (overflow) ++state_.num_skipped;
  if (is_fixed()) return;
  overflow ? fall() : rise();
}

void LossScaler::fall() {
  state_.clean_steps = 0;
  if (by_deepspeed() && state_.hysteresis_left > 1) {
    --state_.hysteresis_left;
    return;
  }
  const double floor = by_deepspeed() ? config_.min_loss_scale : kLeastScale;
  if (state_.scale <= floor) stop_at_floor(state_.scale);
  state_.scale = std::max(state_.scale / 2, floor);
}

void LossScaler::rise() {
  ++state_.clean_steps;
  if (config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
  const int64_t usual = by_deepspeed() ? 1000 : 2000;
  const int64_t window = config_.loss_scale_window > 0 ? config_.loss_scale_window : usual;
  const bool is_late = by_deepspeed() && compat_ != config::DsCompat::k0_16;
  const int64_t counted = state_.clean_steps - (is_late ? 1 : 0);
  if (counted == 0 || counted % window != 0) return;
  state_.hysteresis_left = config_.hysteresis;
  const double doubled = state_.scale * 2;
  if (doubled <= std::numeric_limits<float>::max()) state_.scale = doubled;
}

}  // namespace skein::plan
