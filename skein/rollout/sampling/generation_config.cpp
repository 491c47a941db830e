// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/sampling/generation_config.h"

#include <algorithm>

#include "skein/core/folder.h"
#include "skein/core/json.h"

namespace skein::rollout {
namespace {

constexpr JsonLimits kLimits{.bytes = uint64_t{16} << 20, .depth = 64};

// One id or a list of them.
std::vector<int64_t> read_end_tokens(const JsonObject& source) {
  constexpr const char* kKey = "eos_token_id";
  std::vector<int64_t> ids;
  const auto* entry = source.find(kKey);
  if (!entry) return ids;
  for (const auto& id : entry->is_array() ? *entry : nlohmann::json::array({*entry})) {
    const bool fits = !id.is_number_unsigned() || id.get<uint64_t>() <= INT64_MAX;
    if (!id.is_number_integer() || !fits) {
      source.refuse_value(kKey, "a token id, or a list of them");
    }
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

}  // namespace

GenerationConfig parse_generation_config(std::string_view text, const std::string& origin) {
  const auto source = JsonObject::parse(text, origin, kLimits);
  GenerationConfig config;
  source.read("do_sample", config.do_sample);
  source.read("temperature", config.temperature);
  source.read("top_k", config.top_k);
  source.read("top_p", config.top_p);
  source.read("min_p", config.min_p);
  source.read("repetition_penalty", config.repetition_penalty);
  source.read("max_new_tokens", config.max_new_tokens);
  config.eos_token_ids = read_end_tokens(source);
  return config;
}

GenerationConfig read_generation_config(std::span<const fs::path> folders) {
  constexpr const char *kOwn = "generation_config.json", *kGeneral = "config.json";
  const auto first_with = [&](const char* name) {
    return std::ranges::find_if(folders, [&](auto& folder) { return fs::exists(folder / name); });
  };
  const auto text_of = [&](const fs::path& folder, const char* name) {
    return read_beneath(folder, name, kLimits.bytes);
  };
  GenerationConfig config;
  if (const auto found = first_with(kOwn); found != folders.end()) {
    config = parse_generation_config(text_of(*found, kOwn), (*found / kOwn).string());
  }
  const auto found = first_with(kGeneral);
  if (config.eos_token_ids.empty() && found != folders.end()) {
    config.eos_token_ids = read_end_tokens(
        JsonObject::parse(text_of(*found, kGeneral), (*found / kGeneral).string(), kLimits));
  }
  return config;
}

}  // namespace skein::rollout
