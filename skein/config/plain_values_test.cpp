// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/plain_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "skein/config/help.h"

namespace skein::config {
namespace {

TEST(PlainValues, HoldEveryValueOfTheConfiguration) {
  RunConfig config;
  config.optimizer.learning_rate = 0.25;
  config.model.dtype = DType::kBF16;
  config.model.gradient_checkpointing = true;
  config.checkpoint.save_total_limit = 3;
  config.log.report_to = {"tensorboard", "wandb"};
  config.log.run_name = "a: b";
  std::map<std::string, PlainValue> values;
  for (const auto& [name, value] : plain_values(config)) values[name] = value;
  EXPECT_EQ(values.at("learning_rate"), PlainValue(0.25));
  EXPECT_EQ(values.at("dtype"), PlainValue("bfloat16"));
  EXPECT_EQ(values.at("gradient_checkpointing"), PlainValue(true));
  EXPECT_EQ(values.at("save_total_limit"), PlainValue(3.0));
  EXPECT_EQ(values.at("report_to"), PlainValue("[tensorboard, wandb]"));
  EXPECT_EQ(values.at("run_name"), PlainValue("a: b"));
  EXPECT_EQ(values.at("lr_scheduler_type"), PlainValue("linear"));

  EXPECT_FALSE(values.contains("max_train_samples")) << "absent: no word beside others' numbers";

  constexpr std::array kOfOneStart = {"fresh", "resume_from_checkpoint", "batch_size"};
  for (const auto& key : key_help()) {
    const bool left_out = std::ranges::count(kOfOneStart, key.name) > 0 || key.value == "null";
    EXPECT_EQ(values.contains(key.name), !left_out || key.name == "save_total_limit") << key.name;
  }
}

}  // namespace
}  // namespace skein::config
