// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "skein/text/tokenizer_json.h"

namespace skein::text {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string added_token(const TrainedBpe& trained, int64_t id) {
  return fmt::format(
      R"("content": {}, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true)",
      quoted(trained.vocabulary[id]));
}

template <typename Line>
std::string joined(size_t count, const char* indent, Line line) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    fmt::format_to(std::back_inserter(text), "{}\n{}{}", i == 0 ? "" : ",", indent, line(i));
  }
  return text;
}

}  // namespace

// Written by hand: the objects keep the order of their ids, and a document of a large vocabulary
// need not be built first.
std::string to_tokenizer_json(const TrainedBpe& trained) {
  const auto added = joined(trained.num_special, "    ", [&](size_t id) {
    return fmt::format(R"({{"id": {}, {}}})", id, added_token(trained, id));
  });
  const auto vocabulary = joined(trained.vocabulary.size(), "      ", [&](size_t id) {
    return fmt::format("{}: {}", quoted(trained.vocabulary[id]), id);
  });
  const auto merges = joined(trained.merges.size(), "      ", [&](size_t rank) {
    const auto& merge = trained.merges[rank];
    return fmt::format("[{}, {}]", quoted(trained.vocabulary[merge.left]),
                       quoted(trained.vocabulary[merge.right]));
  });
  constexpr const char* kByteLevel =
      R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})";
  return fmt::format(R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [{}
  ],
  "normalizer": null,
  "pre_tokenizer": {},
  "post_processor": {},
  "decoder": {},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {{{}
    }},
    "merges": [{}
    ]
  }}
}}
)",
                     added, kByteLevel, kByteLevel, kByteLevel, vocabulary, merges);
}

std::string to_tokenizer_config_json(const TrainedBpe& trained) {
  const auto decoder = joined(trained.num_special, "    ", [&](size_t id) {
    return fmt::format(R"("{}": {{{}}})", id, added_token(trained, id));
  });
  const auto end = quoted(trained.vocabulary.at(0));
  // model_max_length is the ecosystem's number for "no limit": the model knows its own.
  return fmt::format(R"({{
  "add_prefix_space": false,
  "added_tokens_decoder": {{{}
  }},
  "bos_token": {},
  "clean_up_tokenization_spaces": false,
  "eos_token": {},
  "model_max_length": 1000000000000000019884624838656,
  "tokenizer_class": "PreTrainedTokenizerFast",
  "unk_token": {}
}}
)",
                     decoder, end, end, end);
}

}  // namespace skein::text
