// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/flag_set.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::cli {
namespace {

using Words = std::vector<std::string>;

struct Everything {
  bool json = false;
  std::string device = "auto";
  int64_t batch = 8;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<std::string> text;
  std::optional<DType> dtype;
  Words prompts, inputs;

  FlagSet flags() {
    FlagSet set("skein try");
    set.add("json", json);
    set.add("device", device);
    set.add("batch-size", batch, /*least=*/1);
    set.add("top-k", top_k);
    set.add("top-p", top_p);
    set.add("text", text);
    set.add("dtype", dtype);
    set.add("prompt", prompts);
    set.add_list("input", inputs);
    return set;
  }
  Words read(const Words& words) { return flags().read(words); }
};

std::string refusal(const Words& words) {
  return skein::refusal<UserError>([&] { Everything().read(words); });
}

TEST(FlagSet, FillsWhatWasDeclaredAndReturnsTheRest) {
  Everything all;
  EXPECT_EQ(all.read({"model", "--json", "--device=cpu", "--batch_size", "3", "--top-k", "-1",
                      "--top-p=0.5", "--text", "--dashes", "--dtype", "bf16", "--prompt", "a",
                      "--prompt=b=c", "other"}),
            (Words{"model", "other"}));
  EXPECT_TRUE(all.json);
  EXPECT_EQ(all.device, "cpu");
  EXPECT_EQ(all.batch, 3);
  EXPECT_EQ(all.top_k, -1);
  EXPECT_EQ(all.top_p, 0.5);
  EXPECT_EQ(all.text, "--dashes");
  EXPECT_EQ(all.dtype, DType::kBF16);
  EXPECT_EQ(all.prompts, (Words{"a", "b=c"}));
}

TEST(FlagSet, WhatIsNotGivenStays) {
  Everything all;
  EXPECT_TRUE(all.read({}).empty());
  EXPECT_EQ(all.batch, 8);
  EXPECT_FALSE(all.top_k || all.top_p || all.text || all.dtype || all.json);
}

TEST(FlagSet, AListGoesOnToTheNextFlag) {
  Everything all;
  EXPECT_EQ(all.read({"--input", "a", "b", "--json", "c"}), (Words{"c"}));
  EXPECT_EQ(all.inputs, (Words{"a", "b"}));
}

TEST(FlagSet, RefusalsNameTheFlag) {
  EXPECT_EQ(refusal({"--batch-size", "0"}), "--batch-size is 0, expected at least 1");
  EXPECT_EQ(refusal({"--batch-size=many"}), "--batch-size is 'many', expected an integer");
  EXPECT_EQ(refusal({"--batch-size", "99999999999999999999"}),
            "--batch-size is '99999999999999999999', expected an integer");
  EXPECT_EQ(refusal({"--top-p", "0,5"}), "--top-p is '0,5', expected a number");
  EXPECT_EQ(
      refusal({"--dtype", "int8"}),
      "--dtype is 'int8', expected one of auto, float32, bfloat16, float16, float64, fp32, bf16, "
      "fp16, half, fp64");
  EXPECT_EQ(refusal({"--prompt"}), "--prompt needs a value");
  EXPECT_EQ(refusal({"--json=yes"}), "--json takes no value");
}

TEST(FlagSet, OneValueIsGivenOnce) {
  EXPECT_EQ(refusal({"--batch-size", "2", "--batch_size=3"}), "--batch-size is given twice");
  EXPECT_EQ(refusal({"--dtype", "fp32", "--dtype", "fp32"}), "--dtype is given twice");
}

TEST(FlagSet, KeysOfMessagesMayBeTyped) {
  Everything all;
  EXPECT_EQ(all.read({"batch_size=3", "runs/lr=3", "=x"}), (Words{"runs/lr=3", "=x"}));
  EXPECT_EQ(all.batch, 3);
}

TEST(FlagSet, ForeignFlagsSayWhatToTypeInstead) {
  FlagSet flags("skein try");
  flags.add_foreign("max-length", "--max-new-tokens N");
  const auto read = [&] { flags.read(Words{"--max_length", "3"}); };
  EXPECT_EQ(skein::refusal<UserError>(read), "skein try has no --max-length: --max-new-tokens N");
  const auto shouted = [&] { flags.read(Words{"--MAX-Length=3"}); };
  EXPECT_EQ(skein::refusal<UserError>(shouted), skein::refusal<UserError>(read));
  // Nobody is sent to a flag that is refused.
  const auto misspelt = [&] { flags.read(Words{"--max-lenght", "3"}); };
  EXPECT_EQ(skein::refusal<UserError>(misspelt).find("did you mean"), std::string::npos);
  EXPECT_TRUE(flags.names().empty());
}

TEST(FlagSet, UnknownFlagsAreRefusedWithSuggestionsOrKept) {
  const auto message = refusal({"--promt", "x"});
  EXPECT_NE(message.find("skein try has no flag '--promt'"), std::string::npos) << message;
  EXPECT_NE(message.find("--prompt"), std::string::npos) << message;
  Everything all;
  EXPECT_EQ(all.flags().read(Words{"--lr", "1", "--json", "c.yaml"}, FlagSet::Unknown::kKeep),
            (Words{"--lr", "1", "c.yaml"}));
  EXPECT_TRUE(all.json);
}

TEST(FlagSet, HelpIsAskedForInTwoWays) {
  EXPECT_TRUE(asks_for_help(Words{"show", "-h"}));
  EXPECT_FALSE(asks_for_help(Words{"help"}));
}

}  // namespace
}  // namespace skein::cli
