// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/group_rates.h"

#include <gtest/gtest.h>

namespace skein::train {
namespace {

tensor::ParameterTable adapted(at::Tensor* slot) {
  tensor::ParameterTable table;
  const int unit = table.add_unit("block");
  const auto add = [&](const char* name, std::vector<int64_t> shape, bool trainable = true) {
    table.add({.name = name,
               .shape = std::move(shape),
               .unit = unit,
               .trainable = trainable,
               .slot = slot});
  };
  add("q_proj.weight", {4, 4}, false);
  add("q_proj.bias", {4}, false);
  add("q_proj.lora_A.weight", {2, 4});
  add("q_proj.lora_B.weight", {4, 2});
  add("q_proj.lora_magnitude_vector", {4});
  add("embed_tokens.lora_embedding_A", {2, 9});
  add("lm_head.weight", {9, 4});
  return table;
}

// As peft.optimizers.create_loraplus_optimizer() makes its groups (tests/parity holds it to that).
TEST(GroupRates, AreThoseOfPeft) {
  at::Tensor slot;
  auto table = adapted(&slot);
  set_rates(table, 16, 2e-4);
  const auto rate = [&](const char* name) { return table.find(name)->rate; };
  EXPECT_EQ(rate("q_proj.bias"), 1);
  EXPECT_EQ(rate("q_proj.lora_A.weight"), 1);
  EXPECT_EQ(rate("q_proj.lora_B.weight"), 16);
  EXPECT_EQ(rate("q_proj.lora_magnitude_vector"), 16);
  EXPECT_DOUBLE_EQ(rate("embed_tokens.lora_embedding_A"), 1e-6 / 2e-4);
  EXPECT_EQ(rate("lm_head.weight"), 1);
}

TEST(GroupRates, WithoutARatioAllAreAlike) {
  at::Tensor slot;
  auto table = adapted(&slot);
  set_rates(table, 0, 2e-4);
  for (const auto& parameter : table.parameters) EXPECT_EQ(parameter.rate, 1) << parameter.name;
}

}  // namespace
}  // namespace skein::train
