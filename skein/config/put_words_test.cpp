// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/put_words.h"

#include "skein/config/test_support.h"
#include "skein/core/error.h"

namespace skein::config {
namespace {

class PutWordsTest : public ConfigTest {};

TEST_F(PutWordsTest, WordsAreValuesWithAReason) {
  auto resolved = load_yaml("per_device_train_batch_size: 8\n");
  put_words(resolved,
            "per_device_train_batch_size=4 gradient_accumulation_steps=2 "
            "gradient_checkpointing=true distributed_strategy=zero2",
            "lowered");
  EXPECT_EQ(resolved.config.batch.per_device_train_batch_size, 4);
  EXPECT_EQ(resolved.config.batch.gradient_accumulation_steps, 2);
  EXPECT_TRUE(resolved.config.model.gradient_checkpointing);
  EXPECT_EQ(resolved.config.parallel.distributed_strategy, Strategy::kZero2);
  EXPECT_TRUE(resolved.origin_of("per_device_train_batch_size").text().ends_with("(lowered)"));
  const auto before = resolved.config;
  put_words(resolved, "", "lowered");
  EXPECT_EQ(resolved.config, before);
}

TEST_F(PutWordsTest, OthersAreRefused) {
  for (const char* words : {"seed", "sed=3", "seed=three", "gradient_checkpointing=maybe"}) {
    auto resolved = load_yaml("");
    EXPECT_THROW(put_words(resolved, words, "lowered"), UserError) << words;
  }
}

}  // namespace
}  // namespace skein::config
