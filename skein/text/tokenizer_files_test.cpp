// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/tokenizer_files.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/text/test_tokenizer.h"
#include "skein/text/tokenizer.h"

namespace skein::text {
namespace {

using TokenizerFiles = TemporaryFolder;

TEST_F(TokenizerFiles, OfAFolder) {
  for (const char* name :
       {"tokenizer.json", "merges.txt", "config.json", "additional_chat_templates/rag.jinja",
        "additional_chat_templates/notes.txt", "additional_chat_templates/deep/er.jinja"}) {
    write(name, "x");
  }
  EXPECT_EQ(tokenizer_files_in(folder_),
            (std::vector<std::string>{"additional_chat_templates/rag.jinja", "merges.txt",
                                      "tokenizer.json"}));
  EXPECT_TRUE(tokenizer_files_in(folder_ / "nowhere").empty());
}

// A manifest could not name it: every checkpoint would be damaged.
TEST_F(TokenizerFiles, AreNamedInUtf8) {
  write("additional_chat_templates/\xC3\xA4.jinja", "x");
  EXPECT_EQ(tokenizer_files_in(folder_).size(), 1U);
  write("additional_chat_templates/rag\xFF.txt", "x");
  EXPECT_EQ(tokenizer_files_in(folder_).size(), 1U) << "it is none of these";
  write("additional_chat_templates/rag\xFF.jinja", "x");
  EXPECT_PRED2(contains, refusal<UserError>([&] { tokenizer_files_in(folder_); }), "not UTF-8");
}

TEST_F(TokenizerFiles, AFileHasWhatLiesBesideItUnlessAnotherHas) {
  const auto json = byte_tokenizer_json({"<a>", "<b>"});
  const auto mine = write("mine.json", json);
  write("tokenizer_config.json", R"({"eos_token": "<a>"})");
  write("special_tokens_map.json", R"({"eos_token": "<b>", "pad_token": "<b>"})");
  EXPECT_EQ(tokenizer_place(mine).folder, folder_);
  const auto alone = Tokenizer::load(mine);
  EXPECT_EQ(alone.eos_id(), alone.id_of("<a>")) << "the first file that names it";
  EXPECT_EQ(alone.pad_id(), alone.id_of("<b>"));
  const auto digest = digest_of_files(mine);

  write("tokenizer.json", json);
  EXPECT_EQ(tokenizer_place(mine).folder, fs::path());
  EXPECT_NE(Tokenizer::load(mine).eos_id(), alone.eos_id());
  EXPECT_FALSE(Tokenizer::load(mine).pad_id());
  EXPECT_NE(digest_of_files(mine), digest);
  for (const auto& path : {folder_, folder_ / "tokenizer.json"}) {
    EXPECT_EQ(tokenizer_place(path).file, folder_ / "tokenizer.json");
    EXPECT_EQ(tokenizer_place(path).folder, folder_);
    EXPECT_EQ(Tokenizer::load(path).eos_id(), alone.eos_id());
  }
}

}  // namespace
}  // namespace skein::text
