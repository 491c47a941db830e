// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/arguments.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::config {
namespace {

// "CONFIG | key=value key=value".
std::string parsed(const std::vector<std::string>& words) {
  const auto arguments = parse_arguments(words);
  std::string text = arguments.config.value_or("-") + " |";
  for (const auto& setting : arguments.overrides) {
    text += " " + setting.key + "=" + setting.value.text;
  }
  return text;
}

TEST(Arguments, StrayWordsAreToldWhatTheyMayBe) {
  const auto expect = [](const std::vector<std::string>& words, const char* part) {
    EXPECT_PRED2(contains, refusal<UserError>([&] { parse_arguments(words); }), part);
  };
  expect({"data.jsonl"}, "'data.jsonl' is data: give train_file=data.jsonl");
  expect({"a.yaml", "learning_rate", "=", "1e-3"}, "write learning_rate=value without spaces");
  expect({"learning_rate", "=1e-3"}, "write learning_rate=value without spaces");
  expect({"--report_to", "tensorboard", "wandb", "a.yaml"},
         "commas, --report_to tensorboard,wandb");
  EXPECT_NO_THROW(parse_arguments(std::vector<std::string>{"--seed", "1", "a.yaml"}));
}

TEST(Arguments, EverySpelling) {
  struct Case {
    std::vector<std::string> words;
    const char* expected;
  };
  const Case cases[] = {
      {{}, "- |"},
      {{"a.yaml"}, "a.yaml |"},
      {{"--config", "a.yaml", "--mode", "train"}, "a.yaml | mode=train"},
      {{"--config=a.yaml"}, "a.yaml |"},
      {{"a.yaml", "lr=1e-3", "training.dataloader.batch_size=4"},
       "a.yaml | lr=1e-3 dataloader.batch_size=4"},
      {{"--learning-rate", "1e-3", "a.yaml"}, "a.yaml | learning_rate=1e-3"},
      {{"--learning_rate=1e-3"}, "- | learning_rate=1e-3"},
      {{"--max_steps", "-1"}, "- | max_steps=-1"},
      {{"--fresh", "a.yaml"}, "a.yaml | fresh=true"},
      {{"--bf16", "a.yaml"}, "a.yaml | bf16=true"},
      {{"--bf16", "false", "a.yaml"}, "a.yaml | bf16=false"},
      {{"--use_torchrun", "a.yaml"}, "a.yaml | use_torchrun=true"},
      {{"--report_to", "tensorboard"}, "- | report_to=tensorboard"},
      {{"--train-from-scratch", "--seed", "3"}, "- | train_from_scratch=true seed=3"},
      {{"runs/lr=3/a.yaml"}, "runs/lr=3/a.yaml |"},
      {{"train_file=runs/a.txt"}, "- | train_file=runs/a.txt"},
      {{"experiment_name=a=b"}, "- | experiment_name=a=b"},
      {{"--config", "c.yaml", "--stage", "pretrain", "--batch_size", "32", "--lr", "1.6e-3",
        "--local_rank", "0", "--deepspeed_config", "d.json"},
       "c.yaml | stage=pretrain batch_size=32 lr=1.6e-3 local_rank=0 deepspeed_config=d.json"},
  };
  for (const auto& c : cases) EXPECT_EQ(parsed(c.words), c.expected);
}

TEST(Arguments, RefusesWhatItCannotPlace) {
  EXPECT_THROW(parsed({"a.yaml", "b.yaml"}), UserError);
  EXPECT_THROW(parsed({"a.yaml", "--config", "b.yaml"}), UserError);
  EXPECT_THROW(parsed({"-x"}), UserError);
  EXPECT_THROW(parsed({"=3"}), UserError);
}

}  // namespace
}  // namespace skein::config
