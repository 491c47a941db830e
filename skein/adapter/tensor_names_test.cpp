// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/tensor_names.h"

#include <gtest/gtest.h>

namespace skein::adapter {
namespace {

struct TestParameter {
  std::string name;
  bool trainable = false;
};
using Names = std::vector<std::string>;

TEST(TensorNames, WhatTrainsAndWhatPeftStoresBesides) {
  const std::vector<TestParameter> model = {
      {"embed.weight"},          {"q.weight"},    {"q.lora_A.weight", true},
      {"q.lora_B.weight", true}, {"head.weight"}, {"head.lora_A.weight", true}};
  const std::string prefix = "base_model.model.";
  const auto stored = [&](const std::set<std::string>& files) {
    return stored_names(model, files);
  };
  EXPECT_EQ(stored({}), (Names{"", "", prefix + "q.lora_A.weight", prefix + "q.lora_B.weight", "",
                               prefix + "head.lora_A.weight"}));
  EXPECT_EQ(stored({prefix + "head.base_layer.weight"}).at(4), prefix + "head.base_layer.weight");
  EXPECT_EQ(stored({prefix + "head.base_layer.weight"}).at(0), "") << "the head has its own";
  EXPECT_EQ(stored({prefix + "embed.weight"}).at(0), prefix + "embed.weight");
}

TEST(TensorNames, OfATiedHeadTheEmbeddingLiesUnderIt) {
  const std::vector<TestParameter> model = {
      {"embed.weight"}, {"q.weight"}, {"q.lora_A.weight", true}, {"head.lora_A.weight", true}};
  const std::set<std::string> files = {"base_model.model.head.base_layer.weight",
                                       "base_model.model.q.base_layer.weight"};
  const auto names = stored_names(model, files);
  EXPECT_EQ(names.at(0), "base_model.model.head.base_layer.weight");
  EXPECT_EQ(names.at(1), "base_model.model.q.base_layer.weight");
  EXPECT_EQ(stored_names(model, std::set<std::string>{}).at(0), "");
  // Its own name wins.
  EXPECT_EQ(stored_names(model, std::set<std::string>{"base_model.model.embed.base_layer.weight",
                                                      "base_model.model.head.base_layer.weight"})
                .at(0),
            "base_model.model.embed.base_layer.weight");
}

}  // namespace
}  // namespace skein::adapter
