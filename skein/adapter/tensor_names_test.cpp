// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/tensor_names.h"

#include <gtest/gtest.h>

#include <set>

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
      {"embed.weight"}, {"q.weight"}, {"q.lora_A.weight", true}, {"lm_head.lora_A.weight", true}};
  const std::string head = "base_model.model.lm_head.base_layer.weight";
  const std::set<std::string> files = {head, "base_model.model.q.base_layer.weight"};
  const auto names = stored_names(model, files);
  EXPECT_EQ(names.at(0), head);
  EXPECT_EQ(names.at(1), "base_model.model.q.base_layer.weight");
  EXPECT_EQ(embedding_again(model, files), "") << "it is there once";
  EXPECT_EQ(stored_names(model, std::set<std::string>{}).at(0), "");
  // Its own name wins.
  const std::set<std::string> both = {"base_model.model.embed.base_layer.weight", head};
  EXPECT_EQ(stored_names(model, both).at(0), "base_model.model.embed.base_layer.weight");
  EXPECT_EQ(embedding_again(model, both), head);
}

// PEFT's save_embedding_layers, which it turns on by itself when a vocabulary was resized.
TEST(TensorNames, OfATiedHeadTheEmbeddingMayBeThereTwice) {
  std::vector<TestParameter> model = {{"embed.weight"}, {"q.weight"}, {"q.lora_A.weight", true}};
  const std::string embedding = "base_model.model.embed.weight",
                    head = "base_model.model.lm_head.weight";
  const std::set<std::string> both = {embedding, head};
  EXPECT_EQ(stored_names(model, both).at(0), embedding);
  EXPECT_EQ(embedding_again(model, both), head);
  EXPECT_EQ(stored_names(model, std::set<std::string>{head}).at(0), head);
  EXPECT_EQ(embedding_again(model, std::set<std::string>{head}), "");
  model.push_back({"lm_head.weight"});
  EXPECT_EQ(embedding_again(model, both), "") << "the head has its own";
  EXPECT_EQ(stored_names(model, both).at(3), head);
}

}  // namespace
}  // namespace skein::adapter
