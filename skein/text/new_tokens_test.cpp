// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/new_tokens.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/text/tokenizer.h"

namespace skein::text {
namespace {

using nlohmann::ordered_json;

std::string tokenizer(const std::string& added) {
  return R"({"version": "1.0", "truncation": null, )" + added +
         R"("normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "post_processor": null, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\"]}": 2, "known": 3},
                      "merges": []}})";
}

const std::string kTwo =
    R"("added_tokens": [{"id": 4, "content": "<eos>", "special": true, "normalized": false},
        {"id": 9, "content": "<]>", "special": false}], )";

TEST(NewTokens, GetTheIdsBehindAll) {
  const auto text = tokenizer(kTwo);
  const auto tokens = new_special_tokens(text, {"<new>", "<eos>", "\"quoted\\", "known"}, "t");
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokens[0].id, 10U);
  EXPECT_EQ(tokens[1].id, 11U);
  EXPECT_EQ(tokens[2].id, 3U) << "the vocabulary's own";
  const auto changed = with_tokens(text, tokens);
  auto json = ordered_json::parse(changed), before = ordered_json::parse(text);
  ASSERT_EQ(json.at("added_tokens").size(), 5U);
  EXPECT_EQ(json.at("added_tokens")[3].at("content"), "\"quoted\\");
  EXPECT_EQ(json.at("added_tokens")[2],
            ordered_json::parse(R"({"id": 10, "content": "<new>", "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true})"));
  json.erase("added_tokens");
  before.erase("added_tokens");
  EXPECT_EQ(json, before);
  EXPECT_EQ(Tokenizer::parse(changed, "t").encode("a<new>b<eos>known"),
            (std::vector<uint32_t>{0, 10, 1, 4, 3}));
  // Once there, they are not added again.
  EXPECT_TRUE(new_special_tokens(changed, {"<new>", "known"}, "t").empty());
  EXPECT_EQ(with_tokens(changed, {}), changed);
}

TEST(NewTokens, AListMayBeEmptyNullOrAbsent) {
  for (const auto* added : {R"("added_tokens": [ ], )", R"("added_tokens": null, )", ""}) {
    const auto text = tokenizer(added);
    const auto tokens = new_special_tokens(text, {"<new>"}, "t");
    ASSERT_EQ(tokens.size(), 1U);
    EXPECT_EQ(tokens[0].id, 4U);
    EXPECT_EQ(Tokenizer::parse(with_tokens(text, tokens), "t").encode("a<new>"),
              (std::vector<uint32_t>{0, 4}))
        << added;
  }
}

TEST(NewTokens, OfAConfigThatListsThem) {
  const std::vector<AddedToken> tokens = {
      {.id = 10, .content = "<new>", .special = true, .normalized = false}};
  const std::string text =
      R"({"a": 1, "added_tokens_decoder": {"4": {"content": "<eos>", "special": true}}, "b": {}})";
  const auto json = ordered_json::parse(config_with_tokens(text, tokens));
  EXPECT_EQ(json.at("added_tokens_decoder").size(), 2U);
  EXPECT_EQ(json.at("added_tokens_decoder").at("10").at("content"), "<new>");
  EXPECT_EQ(json.at("b"), ordered_json::object());
  EXPECT_EQ(config_with_tokens(R"({"a": 1})", tokens), R"({"a": 1})");
  EXPECT_EQ(config_with_tokens("{}", tokens), "{}");
}

TEST(NewTokens, WhatIsNoTokenIsRefused) {
  const auto text = tokenizer(kTwo);
  for (const auto& contents :
       std::vector<std::vector<std::string>>{{""}, {"<a>", "<a>"}, {"\xff"}}) {
    EXPECT_THROW(new_special_tokens(text, contents, "t"), UserError);
  }
  EXPECT_THROW(new_special_tokens("{", {"<a>"}, "t"), UserError);
}

}  // namespace
}  // namespace skein::text
