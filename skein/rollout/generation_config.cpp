// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rollout/generation_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/file.h"

namespace skein::rollout {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
constexpr int kMaxDepth = 64;

struct Source {
  Json object;
  std::string origin;

  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(fmt::format("{}: {}", origin, why));
  }
  [[noreturn]] void wrong(const char* key, const char* expected) const {
    auto text = object.at(key).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    refuse(fmt::format("{} is {}, expected {}", key, text, expected));
  }

  const Json* find(const char* key) const {
    const auto entry = object.find(key);
    return entry == object.end() || entry->is_null() ? nullptr : &*entry;
  }
  void read(const char* key, std::optional<double>& value) const {
    const auto* entry = find(key);
    if (!entry) return;
    if (!entry->is_number()) wrong(key, "a number");
    value = entry->get<double>();
  }
  void read(const char* key, std::optional<int64_t>& value) const {
    const auto* entry = find(key);
    if (!entry) return;
    if (!entry->is_number_integer()) wrong(key, "an integer");
    value = entry->get<int64_t>();
  }
  void read(const char* key, std::optional<bool>& value) const {
    const auto* entry = find(key);
    if (!entry) return;
    if (!entry->is_boolean()) wrong(key, "true or false");
    value = entry->get<bool>();
  }
  // One id or a list of them.
  void read(const char* key, std::vector<int64_t>& ids) const {
    const auto* entry = find(key);
    if (!entry) return;
    for (const auto& id : entry->is_array() ? *entry : Json::array({*entry})) {
      if (!id.is_number_integer()) wrong(key, "a token id, or a list of them");
      ids.push_back(id.get<int64_t>());
    }
  }
};

Source parse(std::string_view text, const std::string& origin) {
  Source source{.object = {}, .origin = origin};
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) {
      source.refuse(fmt::format("nested more than {} levels deep", kMaxDepth));
    }
    return true;
  };
  try {
    source.object = Json::parse(text.begin(), text.end(), limit_depth);
  } catch (const Json::exception& error) {
    source.refuse(fmt::format("not valid JSON: {}", error.what()));
  }
  if (!source.object.is_object()) source.refuse("not a JSON object");
  return source;
}

}  // namespace

GenerationConfig parse_generation_config(std::string_view text, const std::string& origin) {
  const auto source = parse(text, origin);
  GenerationConfig config;
  source.read("do_sample", config.do_sample);
  source.read("temperature", config.temperature);
  source.read("top_k", config.top_k);
  source.read("top_p", config.top_p);
  source.read("min_p", config.min_p);
  source.read("repetition_penalty", config.repetition_penalty);
  source.read("max_new_tokens", config.max_new_tokens);
  source.read("eos_token_id", config.eos_token_ids);
  return config;
}

GenerationConfig read_generation_config(const fs::path& folder) {
  GenerationConfig config;
  const auto own = folder / "generation_config.json", general = folder / "config.json";
  if (fs::exists(own)) config = parse_generation_config(read_file(own, kMaxBytes), own.string());
  if (config.eos_token_ids.empty() && fs::exists(general)) {
    const auto source = parse(read_file(general, kMaxBytes), general.string());
    source.read("eos_token_id", config.eos_token_ids);
  }
  return config;
}

}  // namespace skein::rollout
