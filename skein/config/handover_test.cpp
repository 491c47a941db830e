// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/handover.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "skein/core/error.h"

namespace skein::config {
namespace {

TEST(Handover, EveryValueAndOriginArrives) {
  const std::vector<std::string> words = {"model_name_or_path=/m/\xff\"' x",
                                          "learning_rate=0.1",
                                          "max_steps=12",
                                          "distributed_strategy=zero2",
                                          "report_to=tensorboard",
                                          "max_eval_samples=7",
                                          "fresh=true",
                                          "gradient_checkpointing=on",
                                          "cutoff_len=64"};
  const auto resolved = load(words);
  ASSERT_TRUE(resolved.config.checkpoint.fresh) << "not saved, but handed over";
  const auto read = decode_resolved(encode(resolved));
  EXPECT_EQ(read.config, resolved.config);
  EXPECT_EQ(to_yaml(read, /*with_origins=*/true), to_yaml(resolved, /*with_origins=*/true));
  EXPECT_EQ(read.origin_of("block_size").text(), "command line (cutoff_len)");
  EXPECT_EQ(read.origins.size(), resolved.origins.size());
}

TEST(Handover, PlacesInFilesArrive) {
  const auto resolved = load_text("output_dir: out\nlearning_rate: 3e-4\n", "recipe.yaml");
  const auto read = decode_resolved(encode(resolved));
  EXPECT_EQ(read.config, resolved.config);
  EXPECT_EQ(read.origin_of("learning_rate").place(), resolved.origin_of("learning_rate").place());
  EXPECT_EQ(read.origin_of("seed").place(), "default");
}

TEST(Handover, WhatIsNoConfigurationIsRefused) {
  const auto bytes = encode(Resolved{});
  EXPECT_EQ(decode_resolved(bytes).config, RunConfig{});
  for (const auto& wrong : {std::string(), std::string("{}"), bytes.substr(0, bytes.size() / 2)}) {
    EXPECT_THROW(decode_resolved(wrong), UserError);
  }
}

}  // namespace
}  // namespace skein::config
