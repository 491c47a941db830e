// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/sampling/generation_config.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::rollout {
namespace {

TEST(GenerationConfig, ReadsHuggingFaceKeys) {
  const auto config = parse_generation_config(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": null,
          "repetition_penalty": 1.05, "eos_token_id": [7, 9], "transformers_version": "5.0"})",
      "file");
  EXPECT_EQ(config.do_sample, true);
  EXPECT_EQ(config.temperature, 0.6);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.9);
  EXPECT_FALSE(config.min_p);
  EXPECT_FALSE(config.max_new_tokens);
  EXPECT_EQ(config.repetition_penalty, 1.05);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(parse_generation_config(R"({"eos_token_id": 3})", "file").eos_token_ids,
            (std::vector<int64_t>{3}));
}

TEST(GenerationConfig, RefusesOtherTypesByKey) {
  for (const auto* text :
       {R"({"top_k": "many"})", R"({"temperature": []})", R"({"do_sample": 1})",
        R"({"eos_token_id": ["x"]})", R"({"eos_token_id": 18446744073709551615})", "[1]", "{"}) {
    EXPECT_THROW(parse_generation_config(text, "file"), UserError) << text;
  }
}

using GenerationConfigFiles = TemporaryFolder;

GenerationConfig read(const std::vector<fs::path>& folders) {
  return read_generation_config(folders);
}

TEST_F(GenerationConfigFiles, EndTokensComeFromConfigJsonWhereTheFileHasNone) {
  write("config.json", R"({"eos_token_id": 5})");
  EXPECT_EQ(read({folder_}).eos_token_ids, (std::vector<int64_t>{5}));
  write("generation_config.json", R"({"top_k": 4})");
  EXPECT_EQ(read({folder_}).eos_token_ids, (std::vector<int64_t>{5}));
  EXPECT_EQ(read({folder_}).top_k, 4);
  write("generation_config.json", R"({"eos_token_id": [6]})");
  EXPECT_EQ(read({folder_}).eos_token_ids, (std::vector<int64_t>{6}));
}

// An adapter's folder has no config.json: what its generation_config.json leaves out is the base's.
TEST_F(GenerationConfigFiles, TheFirstFolderThatSaysItCounts) {
  write("base/config.json", R"({"eos_token_id": 5})");
  write("base/generation_config.json", R"({"top_k": 3, "top_p": 0.5})");
  write("adapter/README.md", "");
  const std::vector<fs::path> folders = {folder_ / "adapter", folder_ / "base"};
  EXPECT_EQ(read(folders).top_k, 3);
  EXPECT_EQ(read(folders).eos_token_ids, (std::vector<int64_t>{5}));
  write("adapter/generation_config.json", R"({"top_k": 4})");
  EXPECT_EQ(read(folders).top_k, 4);
  EXPECT_FALSE(read(folders).top_p) << "one file, as a whole";
  EXPECT_EQ(read(folders).eos_token_ids, (std::vector<int64_t>{5}));
}

}  // namespace
}  // namespace skein::rollout
