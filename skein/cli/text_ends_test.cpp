// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/text_ends.h"

#include <gtest/gtest.h>

#include "skein/core/testing.h"
#include "skein/text/test_tokenizer.h"

namespace skein::cli {
namespace {

using Tokens = std::vector<int64_t>;

// <|im_end|> is 1000, </s> 1001.
class TextEndsTest : public TemporaryFolder {
 protected:
  TextEndsTest() {
    write("tokenizer.json", text::byte_tokenizer_json({"<|im_end|>", "</s>"}));
    write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  }
  static rollout::GenerationConfig saying(const Tokens& ends) {
    rollout::GenerationConfig config;
    config.eos_token_ids = ends;
    return config;
  }
  TextEnds of_text(const Tokens& said) const {
    return ends_of_text(saying(said), *text::open_codec(folder_));
  }
  TextEnds of_turn(const Tokens& said, const std::string& name) const {
    return ends_of_turn(saying(said),
                        text::ChatTemplate::open({.folder = folder_, .file = "", .name = name}),
                        text::Tokenizer::load(folder_));
  }
};

TEST_F(TextEndsTest, ATextEndsWhereTheFolderSays) {
  EXPECT_EQ(of_text({7, 8}).tokens, (Tokens{7, 8}));
  EXPECT_EQ(of_text({}).tokens, (Tokens{1001}));
  EXPECT_TRUE(of_text({7, 8}).holds(8));
  EXPECT_FALSE(of_text({7, 8}).holds(1001));
  fs::remove(folder_ / "tokenizer.json");
  EXPECT_EQ(of_text({7}).tokens, (Tokens{7, 256})) << "of bytes";
}

TEST_F(TextEndsTest, AnAnswerEndsWithItsTurnToo) {
  EXPECT_EQ(of_turn({7}, "chatml").tokens, (Tokens{7, 1001, 1000}));
  EXPECT_TRUE(of_turn({7}, "chatml").texts.empty());
  // <end_of_turn> is no token here.
  EXPECT_EQ(of_turn({7}, "gemma").tokens, (Tokens{7, 1001}));
  EXPECT_EQ(of_turn({7}, "gemma").texts, (std::vector<std::string>{"<end_of_turn>"}));
}

}  // namespace
}  // namespace skein::cli
