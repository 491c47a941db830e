// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/yaml_reader.h"

#include "skein/config/test_support.h"

namespace skein::config {
namespace {

using YamlTest = ConfigTest;

TEST_F(YamlTest, MergeKeysAreApplied) {
  const auto resolved = load_yaml(
      "x-common: &common {learning_rate: 1e-3, seed: 7}\n"
      "x-more: &more {seed: 8, max_steps: 5}\n"
      "training:\n"
      "  <<: [*common, *more]\n"
      "  learning_rate: 2e-3\n");
  EXPECT_EQ(resolved.config.optimizer.learning_rate, 2e-3);
  EXPECT_EQ(resolved.config.seed, 7);
  EXPECT_EQ(resolved.config.schedule.max_steps, 5);
}

TEST_F(YamlTest, WhatIsNotOneWellFormedDocumentIsRefusedWithItsPlace) {
  struct Case {
    const char* yaml;
    const char* message;
  };
  const Case cases[] = {
      {"seed: 1\nseed: 2\n", "run.yaml:2:1: duplicate key 'seed': first given at run.yaml:1:1"},
      {"training:\n  seed: 1\n  seed: 1\n", "run.yaml:3:3: duplicate key 'seed'"},
      {"seed: [1\n", "not well-formed YAML"},
      {"seed: 1\n---\nseed: 2\n", "more than one YAML document"},
      {",a [\"b]\n", "more than one YAML document"},  // yaml-cpp makes no way in it
      {"- 1\n- 2\n", "run.yaml:1:1: expected 'key: value' lines"},
      {"x-a: &a {b: *a}\n", "an alias that contains itself"},
      {"training:\n  <<: 5\n", "'<<' merges maps only"},
      {"? [1, 2]\n: 3\n", "a key must be a plain word"},
      {"extends: \"a.yaml\\0.txt\"\n", "run.yaml:1:10: a zero byte in the text"},
      {"\"seed\\0\": 1\n", "run.yaml:1:1: a zero byte in the text"},
  };
  for (const auto& c : cases) EXPECT_PRED2(contains, error_of(c.yaml), c.message) << c.yaml;
}

TEST_F(YamlTest, ManyAliasesOfAliasesAreRefused) {
  std::string yaml = "x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 9; ++i) {
    yaml += "x-" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) yaml += (j ? ", *a" : "*a") + std::to_string(i - 1);
    yaml += "]\n";
  }
  EXPECT_PRED2(contains, error_of(yaml), "nested too deeply");
}

TEST_F(YamlTest, AnEmptyFileIsAllDefaults) {
  for (const auto* yaml : {"", "# only a comment\n", "training:\n"}) {
    EXPECT_EQ(load_yaml(yaml).config, RunConfig()) << yaml;
  }
}

TEST_F(YamlTest, ExtendsIsRelativeToTheChildAndYieldsToIt) {
  write("base/parent.yaml", "lr: 1e-3\nseed: 5\nbf16: true\n");
  write("base/middle.yaml", "extends: parent.yaml\nseed: 6\n");
  const auto resolved = load_yaml("extends: base/middle.yaml\ntraining:\n  learning_rate: 2e-3\n");
  EXPECT_EQ(resolved.config.optimizer.learning_rate, 2e-3);
  EXPECT_EQ(resolved.config.seed, 6);
  EXPECT_EQ(resolved.config.model.dtype, DType::kBF16);
  EXPECT_EQ(without_folder(resolved.origin_of("dtype").text()), "base/parent.yaml:3:1 (bf16)");
}

TEST_F(YamlTest, ExtendsRefusesCirclesAndMissingFiles) {
  write("other.yaml", "extends: run.yaml\n");
  EXPECT_PRED2(contains, error_of("extends: other.yaml\n"),
               "other.yaml:1:10: 'extends' goes in a circle");
  EXPECT_PRED2(contains, error_of("extends: run.yaml\n"),
               "run.yaml:1:10: 'extends' goes in a circle");
  EXPECT_EQ(error_of("seed: 1\nextends: none.yaml\n"),
            "run.yaml:2:10: configuration file 'none.yaml' does not exist");
  EXPECT_PRED2(contains, error_of("extends: [a, b]\n"), "'extends' takes one file name");
}

TEST_F(YamlTest, NamesTooLongForAFileAreRefusedAsAbsent) {
  const std::string name(5000, 'n');
  EXPECT_PRED2(contains, error_of("extends: " + name + "\n"), "does not exist");
  EXPECT_PRED2(contains, error_of("deepspeed: " + name + "\n"), "does not exist");
}

TEST_F(YamlTest, JsonKeepsPlacesAndRefusesWhatIsNotJson) {
  const auto node = read_json("{\n\t\"a\":1,\n\t\"b\": {\"c\" :\"2e8\"}\n}", "ds.json");
  EXPECT_EQ(node.find("a")->text, "1");
  EXPECT_EQ(node.find("b")->find("c")->origin.place(), "ds.json:3:13");
  for (const auto* text : {"{\n  \"a\": 1,\n}", "{a: 1}", "", "{\"a\": 1} {}"}) {
    EXPECT_THROW(read_json(text, "ds.json"), UserError) << text;
  }
}

}  // namespace
}  // namespace skein::config
