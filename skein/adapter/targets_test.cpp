// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/targets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::adapter {
namespace {

std::vector<Module> llama() {
  std::vector<Module> modules = {{.name = "model.embed_tokens", .is_linear = false}};
  for (const char* layer : {"0", "1", "11"}) {
    const auto prefix = std::string("model.layers.") + layer;
    modules.push_back({prefix + ".self_attn.q_proj"});
    modules.push_back({prefix + ".self_attn.v_proj"});
    modules.push_back({prefix + ".mlp.up_proj"});
    modules.push_back({.name = prefix + ".input_layernorm", .is_linear = false});
  }
  modules.push_back({.name = "lm_head", .is_head = true});
  return modules;
}

AdapterConfig config_of(const std::string& keys) {
  return parse_adapter_config(R"({"peft_type": "LORA", )" + keys + "}", "a.json");
}

std::vector<std::string> targets(const std::string& keys) {
  const auto modules = llama();
  std::vector<std::string> names;
  for (const auto index : find_targets(config_of(keys), modules)) {
    names.push_back(modules[index].name);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Targets, NamesAreEqualOrFollowADot) {
  EXPECT_EQ(targets(R"("target_modules": ["q_proj"])").size(), 3U);
  EXPECT_EQ(targets(R"("target_modules": ["lm_head"])"), Names{"lm_head"});
  EXPECT_EQ(targets(R"("target_modules": ["1.self_attn.q_proj"])"),
            Names{"model.layers.1.self_attn.q_proj"});
  EXPECT_EQ(targets(R"("target_modules": ["embed_tokens", "proj"])"), Names{"model.embed_tokens"});
}

TEST(Targets, APatternMatchesTheWholeName) {
  EXPECT_EQ(targets(R"("target_modules": ".*\\.1\\..*_proj")"),
            (Names{"model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj",
                   "model.layers.1.mlp.up_proj"}));
}

TEST(Targets, AllLinearLeavesTheHeadOut) {
  EXPECT_EQ(targets(R"("target_modules": "all-linear")").size(), 9U);
  EXPECT_EQ(targets(R"("target_modules": "all-linear", "exclude_modules": ["up_proj"])").size(),
            6U);
}

TEST(Targets, WhatIsSavedWholeIsNotAdapted) {
  EXPECT_EQ(
      targets(R"("target_modules": ["q_proj", "lm_head"], "modules_to_save": ["lm_head"])").size(),
      3U);
  const auto config = config_of(R"("modules_to_save": ["mlp"])");
  EXPECT_TRUE(is_saved_whole(config, "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(is_saved_whole(config, "model.layers.0.mlps.up_proj"));
  EXPECT_TRUE(is_saved_whole(config, "model.layers.0.other_mlp.up_proj")) << "by ending, as PEFT";
}

TEST(Targets, LayersAreTheFirstNumber) {
  EXPECT_EQ(targets(R"("target_modules": ["q_proj"], "layers_to_transform": [1])"),
            Names{"model.layers.1.self_attn.q_proj"});
  EXPECT_EQ(targets(R"("target_modules": ["q_proj"], "layers_to_transform": 11)"),
            Names{"model.layers.11.self_attn.q_proj"});
  // A name that is given whole is taken whatever its layer.
  EXPECT_EQ(targets(R"("target_modules": ["model.layers.0.self_attn.q_proj", "v_proj"],
                       "layers_to_transform": [1])"),
            (Names{"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}));
}

TEST(Targets, NoneNamesTheNearest) {
  const auto why = refusal<UserError>([] { targets(R"("target_modules": ["q_prj"])"); });
  EXPECT_PRED2(contains, why, "target_modules [q_prj] matches no layer of the model");
  EXPECT_PRED2(contains, why, "did you mean 'q_proj'");
  EXPECT_PRED2(contains, why, "embed_tokens, input_layernorm, lm_head");
  EXPECT_PRED2(contains, refusal<UserError>([] { targets(R"("target_modules": "x.*")"); }),
               "the pattern 'x.*'");
  EXPECT_THROW(targets(R"("r": 8)"), UserError);
}

TEST(Targets, TheFirstPatternGivesRankAndAlpha) {
  const auto config = config_of(
      R"("r": 16, "lora_alpha": 32, "rank_pattern": {"q_proj": 4, ".*1\\..*": 8},
         "alpha_pattern": {"v_proj": 2})");
  const Strengths strengths(config);
  EXPECT_EQ(strengths.rank_of("model.layers.1.self_attn.q_proj"), 4);
  EXPECT_EQ(strengths.rank_of("model.layers.1.self_attn.v_proj"), 8);
  EXPECT_EQ(strengths.rank_of("model.layers.0.self_attn.v_proj"), 16);
  EXPECT_EQ(strengths.scale_of("model.layers.1.self_attn.q_proj"), 8.0);
  EXPECT_EQ(strengths.scale_of("model.layers.1.self_attn.v_proj"), 0.25);
}

TEST(Targets, RankStabilisedScale) {
  const auto config = config_of(R"("r": 16, "lora_alpha": 32, "use_rslora": true)");
  EXPECT_EQ(Strengths(config).scale_of("x"), 8.0);
}

}  // namespace
}  // namespace skein::adapter
