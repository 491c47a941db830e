// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/hparams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "skein/config/help.h"

namespace skein::report {
namespace {

TEST(Hparams, HoldEveryValueOfTheConfiguration) {
  config::RunConfig config;
  config.optimizer.learning_rate = 0.25;
  config.model.dtype = DType::kBF16;
  config.model.gradient_checkpointing = true;
  config.checkpoint.save_total_limit = 3;
  config.log.report_to = {"tensorboard", "wandb"};
  config.log.run_name = "a: b";
  std::map<std::string, HparamValue> values;
  for (const auto& [name, value] : hparams_of(config)) values[name] = value;
  EXPECT_EQ(values.at("learning_rate"), HparamValue(0.25));
  EXPECT_EQ(values.at("dtype"), HparamValue("bfloat16"));
  EXPECT_EQ(values.at("gradient_checkpointing"), HparamValue(true));
  EXPECT_EQ(values.at("save_total_limit"), HparamValue(3.0));
  EXPECT_EQ(values.at("max_train_samples"), HparamValue("none"));
  EXPECT_EQ(values.at("report_to"), HparamValue("[tensorboard, wandb]"));
  EXPECT_EQ(values.at("run_name"), HparamValue("a: b"));
  EXPECT_EQ(values.at("lr_scheduler_type"), HparamValue("linear"));

  constexpr std::array kOfOneStart = {"fresh", "resume_from_checkpoint", "batch_size"};
  for (const auto& key : config::key_help()) {
    const bool left_out = std::ranges::count(kOfOneStart, key.name) > 0;
    EXPECT_EQ(values.contains(key.name), !left_out) << key.name;
  }
}

}  // namespace
}  // namespace skein::report
