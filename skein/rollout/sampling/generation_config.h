// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does a model folder want its text made?
//
// generation_config.json, with Hugging Face's keys; keys that skein does not know are passed over,
// null is absent. The end tokens may also be in config.json. Free of torch: the bytes come from
// outside.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skein::rollout {

struct GenerationConfig {
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
  std::vector<int64_t> eos_token_ids;
};

// `origin` names the text in messages. Throws UserError naming file and key.
GenerationConfig parse_generation_config(std::string_view text, const std::string& origin);
// Of the first of a model's folders that has the file; without it, or without end tokens in it,
// those of the first config.json.
GenerationConfig read_generation_config(std::span<const std::filesystem::path> folders);

}  // namespace skein::rollout
