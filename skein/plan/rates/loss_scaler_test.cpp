// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/rates/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::plan {
namespace {

using config::DsCompat;
using config::LossScaleConfig;
using config::LossScaleRule;

// tests/parity compares both rules with PyTorch and DeepSpeed over 2,000 steps.

// The scale after each step; 'x' is an overflow.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> found;
  for (const char step : steps) {
    scaler.update(step == 'x');
    found.push_back(scaler.scale());
  }
  return found;
}
std::vector<double> scales(const LossScaleConfig& config, const std::string& steps,
                           DsCompat compat = DsCompat::k0_19) {
  LossScaler scaler(config, compat);
  return scales(scaler, steps);
}

TEST(LossScaler, PyTorchHalvesAtEveryOverflowAndDoublesAfterTheWindow) {
  const LossScaleConfig config{.initial_scale_power = 3, .loss_scale_window = 2};
  EXPECT_EQ(scales(config, "..x..xx"), (std::vector<double>{8, 16, 8, 8, 16, 8, 4}));
}

TEST(LossScaler, DeepSpeedForgivesAsManyOverflowsAsHysteresisSays) {
  const LossScaleConfig config{.loss_scaler = LossScaleRule::kDeepSpeed,
                               .initial_scale_power = 4,
                               .loss_scale_window = 2,
                               .hysteresis = 3};
  EXPECT_EQ(scales(config, "xx.xx"), (std::vector<double>{16, 16, 16, 8, 4}));
  auto refilled = config;
  refilled.consecutive_hysteresis = true;
  EXPECT_EQ(scales(refilled, "xx.xxx"), (std::vector<double>{16, 16, 16, 16, 16, 8}));
}

TEST(LossScaler, NewerDeepSpeedDoublesOneStepLater) {
  const LossScaleConfig config{.loss_scaler = LossScaleRule::kDeepSpeed,
                               .initial_scale_power = 0,
                               .loss_scale_window = 2,
                               .min_loss_scale = 1};
  EXPECT_EQ(scales(config, ".....", DsCompat::k0_16), (std::vector<double>{1, 2, 2, 4, 4}));
  EXPECT_EQ(scales(config, ".....", DsCompat::k0_19), (std::vector<double>{1, 1, 2, 2, 4}));
}

TEST(LossScaler, AnOverflowAtTheFloorEndsTheRun) {
  const LossScaleConfig config{.loss_scaler = LossScaleRule::kDeepSpeed,
                               .initial_scale_power = 3,
                               .hysteresis = 1,
                               .min_loss_scale = 3};
  LossScaler scaler(config, DsCompat::k0_19);
  EXPECT_EQ(scales(scaler, "xx"), (std::vector<double>{4, 3}));
  EXPECT_PRED2(contains, refusal<UserError>([&] { scaler.update(true); }), "bf16=true");
  EXPECT_PRED2(contains, refusal<UserError>([&] { scaler.update(true); }),
               "dtype=float32 and --fresh");
}

TEST(LossScaler, PyTorchsRuleEndsToo) {
  LossScaler scaler({}, DsCompat::k0_19);
  for (int i = 0; i < 32; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 0x1p-16);
  EXPECT_THROW(scaler.update(true), UserError);
}

TEST(LossScaler, AFixedScaleStaysAndCounts) {
  LossScaler scaler({.loss_scale = 128}, DsCompat::k0_19);
  EXPECT_EQ(scales(scaler, "x.x"), (std::vector<double>{128, 128, 128}));
  EXPECT_EQ(scaler.state().num_skipped, 2);
}

TEST(LossScaler, ARestoredOneGoesOnAlike) {
  const LossScaleConfig config{.loss_scaler = LossScaleRule::kDeepSpeed, .loss_scale_window = 3};
  const std::string steps = "x..x....x...xx......";
  const auto whole = scales(config, steps);
  for (size_t cut = 0; cut <= steps.size(); ++cut) {
    LossScaler first(config, DsCompat::k0_19), second(config, DsCompat::k0_19);
    auto found = scales(first, steps.substr(0, cut));
    second.restore(first.state());
    for (const double scale : scales(second, steps.substr(cut))) found.push_back(scale);
    EXPECT_EQ(found, whole) << cut;
  }
}

TEST(LossScaler, AChangedConfigurationWinsOverTheState) {
  const LossScaleConfig config{.initial_scale_power = 5, .loss_scale_window = 9};
  LossScaler first(config, DsCompat::k0_19);
  scales(first, "xx.");
  EXPECT_EQ(first.scale(), 8);
  const auto continued = [&](const LossScaleConfig& changed) {
    LossScaler scaler(changed, DsCompat::k0_19);
    scaler.restore(first.state());
    EXPECT_EQ(scaler.state().num_skipped, 2);
    return scaler.state();
  };
  auto changed = config;
  changed.loss_scale_window = 3;
  EXPECT_EQ(continued(changed).scale, 8);
  EXPECT_EQ(continued(changed).clean_steps, 1);
  changed.initial_scale_power = 10;
  EXPECT_EQ(continued(changed).scale, 1024);
  EXPECT_EQ(continued(changed).clean_steps, 0);
  changed = config;
  changed.loss_scaler = LossScaleRule::kDeepSpeed;
  EXPECT_EQ(continued(changed).scale, 32);
  EXPECT_EQ(continued(changed).hysteresis_left, 2);
  changed = config;
  changed.loss_scale = 128;
  EXPECT_EQ(continued(changed).scale, 128);
}

TEST(LossScaler, ANoLongerFixedScaleBeginsAnew) {
  LossScaler fixed({.loss_scale = 128}, DsCompat::k0_19), moving({}, DsCompat::k0_19);
  moving.restore(fixed.state());
  EXPECT_EQ(moving.scale(), 0x1p16);
}

TEST(LossScaler, HysteresisIsAtMostWhatIsAskedFor) {
  LossScaleConfig config{.loss_scaler = LossScaleRule::kDeepSpeed, .hysteresis = 4};
  LossScaler first(config, DsCompat::k0_19);
  config.hysteresis = 2;
  LossScaler second(config, DsCompat::k0_19);
  second.restore(first.state());
  EXPECT_EQ(second.state().hysteresis_left, 2);
}

}  // namespace
}  // namespace skein::plan
