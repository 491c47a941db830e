// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A tokenizer.json for tests: every byte is a token, and so are these.

#include <string>
#include <vector>

#include "skein/core/json.h"
#include "skein/text/bpe_trainer.h"
#include "skein/text/tokenizer_json.h"

namespace skein::text {

// Their ids are 1000, 1001, …
inline std::string byte_tokenizer_json(const std::vector<std::string>& special_tokens) {
  auto json = parse_json(to_tokenizer_json(train_bpe({{"the", 5}}, {.vocab_size = 257})));
  int id = 1000;
  for (const auto& content : special_tokens) {
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", content},
                                    {"special", true},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false}});
  }
  return json.dump();
}

}  // namespace skein::text
