// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/adapter_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::adapter {
namespace {

using Kind = ModuleChoice::Kind;
using AdapterFolder = TemporaryFolder;

AdapterConfig parse(const std::string& keys) {
  return parse_adapter_config(R"({"peft_type": "LORA", )" + keys + "}", "a.json");
}

std::string refused(const std::string& text) {
  return refusal<UserError>([&] { parse_adapter_config(text, "a.json"); });
}

TEST(AdapterConfig, AbsentAndNullMeanPeftsDefaults) {
  const auto config = parse(R"("target_modules": ["q_proj"], "r": null, "rank_pattern": null)");
  EXPECT_EQ(config.rank, 8);
  EXPECT_EQ(config.alpha, 8);
  EXPECT_EQ(config.dropout, 0);
  EXPECT_FALSE(config.use_rslora || config.use_dora || config.fan_in_fan_out);
  EXPECT_EQ(config.targets, (ModuleChoice{.kind = Kind::kNames, .names = {"q_proj"}}));
  EXPECT_EQ(config.excluded.kind, Kind::kNone);
  EXPECT_TRUE(config.modules_to_save.empty() && config.layers.empty());
}

TEST(AdapterConfig, ReadsTargetsInThreeForms) {
  EXPECT_EQ(parse(R"("target_modules": "ALL-linear")").targets.kind, Kind::kAllLinear);
  const auto pattern = parse(R"("target_modules": ".*q_proj")").targets;
  EXPECT_EQ(pattern.kind, Kind::kPattern);
  EXPECT_EQ(pattern.pattern, ".*q_proj");
}

TEST(AdapterConfig, PatternsKeepTheirOrder) {
  const auto config = parse(
      R"("rank_pattern": {"z": 4, "a": 2}, "alpha_pattern": {"q": 1.5}, "layers_to_transform": 3)");
  EXPECT_EQ(config.rank_pattern, (ModuleValues<int64_t>{{"z", 4}, {"a", 2}}));
  EXPECT_EQ(config.alpha_pattern, (ModuleValues<double>{{"q", 1.5}}));
  EXPECT_EQ(config.layers, std::vector<int64_t>{3});
}

TEST(AdapterConfig, WhatIsWrittenIsReadAgain) {
  const auto config = parse(
      R"("r": 4, "lora_alpha": 16, "lora_dropout": 0.05, "use_rslora": true, "use_dora": true,
         "base_model_name_or_path": "base", "task_type": "CAUSAL_LM", "fan_in_fan_out": true,
         "target_modules": ["v_proj", "q_proj"], "exclude_modules": "x", "modules_to_save": ["lm_head"],
         "layers_to_transform": [0, 2], "rank_pattern": {"z": 4, "a": 2}, "alpha_pattern": {"a": 0.5},
         "peft_version": "0.21.2", "revision": null, "runtime_config": {"x": false})");
  const auto text = adapter_config_json(config);
  const auto again = parse_adapter_config(text, "again");
  EXPECT_EQ(adapter_config_json(again), text);
  EXPECT_EQ(again.rank_pattern, config.rank_pattern);
  EXPECT_EQ(again.alpha_pattern, config.alpha_pattern);
  EXPECT_EQ(again.targets, config.targets);
  EXPECT_EQ(again.excluded, config.excluded);
  EXPECT_EQ(again.layers, config.layers);
  EXPECT_EQ(again.others["peft_version"], "0.21.2");
  EXPECT_PRED2(contains, text, "  \"lora_alpha\": 16,\n  \"lora_dropout\": 0.05,\n");
  EXPECT_LT(text.find("\"alpha_pattern\""), text.find("\"base_model_name_or_path\""));
}

// Each would give another result than PEFT's without a word.
TEST(AdapterConfig, RefusesByNameWhatChangesTheResult) {
  EXPECT_PRED2(contains, refused(R"({"peft_type": "LOHA"})"), "peft_type is 'LOHA'");
  EXPECT_PRED2(contains, refused("{}"), "peft_type");
  for (const char* keys :
       {R"("bias": "all")", R"("layers_pattern": "h")", R"("lora_bias": true)",
        R"("target_parameters": ["x"])", R"("layer_replication": [[0, 1]])",
        R"("trainable_token_indices": [1])", R"("use_qalora": true)",
        R"("megatron_config": {"a": 1})", R"("alora_invocation_tokens": [1])",
        R"("init_lora_weights": "pissa_niter_16")", R"("init_lora_weights": "olora")"}) {
    const auto why = refusal<UserError>([&] { parse(keys); });
    const std::string_view text = keys;
    EXPECT_PRED2(contains, why, text.substr(1, text.find('"', 1) - 1));
    EXPECT_PRED2(contains, why, "a.json");
  }
  EXPECT_NO_THROW(parse(R"("lora_bias": false, "layers_pattern": [], "target_parameters": null,
                            "init_lora_weights": "gaussian", "of_tomorrow": 3)"));
}

TEST(AdapterConfig, RefusesValuesOutOfRange) {
  for (const char* keys :
       {R"("r": 0)", R"("r": 70000)", R"("r": 1.5)", R"("lora_alpha": 1e300)",
        R"("lora_dropout": 1)", R"("target_modules": 3)", R"("target_modules": [""])",
        R"("rank_pattern": {"a": 0})", R"("rank_pattern": {"a": 1.5})", R"("rank_pattern": [1])",
        R"("alpha_pattern": {"a": "x"})", R"("layers_to_transform": [-1])",
        R"("modules_to_save": "lm_head")", R"("exclude_modules": "all-linear")"}) {
    EXPECT_THROW(parse(keys), UserError) << keys;
  }
  EXPECT_THROW(parse_adapter_config("[]", "a.json"), UserError);
}

TEST(AdapterConfig, KeysBeyondTheLimitAreRefused) {
  const auto with_keys = [](int count) {
    std::string keys = R"("peft_type": "LORA")";
    for (int i = 1; i < count; ++i) keys += fmt::format(R"(, "k{}": 1)", i);
    return "{" + keys + "}";
  };
  EXPECT_EQ(refused(with_keys(10'000)), "");
  EXPECT_EQ(refused(with_keys(10'001)), "a.json: an object has more than 10000 keys");
  EXPECT_EQ(refused(R"({"peft_type": "LORA", "rank_pattern": )" + with_keys(10'001) + "}"),
            "a.json: an object has more than 10000 keys");
}

TEST(AdapterConfig, UnknownKeysAreOneWarning) {
  testing::internal::CaptureStderr();
  parse(R"("zzz": 1, "yyy": 2, "xxx": 3)");
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_PRED2(contains, said, "'zzz' is not known");
  EXPECT_PRED2(contains, said, "and so 2 more");
  EXPECT_FALSE(contains(said, "yyy"));
}

TEST_F(AdapterFolder, ALinkThatLeadsOutIsNotFollowed) {
  write("secret", R"({"peft_type": "LORA", "target_modules": ["a"]})");
  make_directories(folder_ / "a");
  fs::create_symlink("../secret", folder_ / "a/adapter_config.json");
  EXPECT_PRED2(contains, refusal<IoError>([&] { read_adapter_config(folder_ / "a"); }),
               "leads out of its folder");
}

TEST_F(AdapterFolder, SaysThatItIsNone) {
  EXPECT_PRED2(contains, refusal<UserError>([&] { read_adapter_config(folder_); }),
               "is no adapter: it has no adapter_config.json");
  write("adapter_config.json", R"({"peft_type": "LORA", "r": 3})");
  EXPECT_EQ(read_adapter_config(folder_).rank, 3);
}

}  // namespace
}  // namespace skein::adapter
