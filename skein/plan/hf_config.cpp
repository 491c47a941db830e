// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/plan/families/config_reader.h"
#include "skein/plan/families/families.h"

namespace skein::plan {
namespace {

constexpr JsonLimits kLimits{.bytes = uint64_t{16} << 20, .depth = 64};

// Of names such as gpt2 and openai-community/gpt2, which may be meant as the hub's.
std::string download_advice(const fs::path& folder) {
  const auto name = folder.string();
  const bool is_hub_name = !name.empty() && std::ranges::count(name, '/') <= 1 &&
                           name.front() != '/' && name.front() != '.' && name.front() != '~' &&
                           name.back() != '/';
  if (!is_hub_name || fs::exists(folder)) return "";
  return fmt::format(
      ", and skein never downloads one. If it is a name on the Hugging Face hub: `hf download {} "
      "--local-dir {}`, then give {}",
      name, folder.filename().string(), folder.filename().string());
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& origin) {
  const ConfigReader reader(JsonObject::parse(text, origin, kLimits));
  HfConfig config;
  config.source = text;
  reader.read("torch_dtype", config.dtype);
  reader.read("dtype", config.dtype);
  reader.read("model_type", config.family);
  for (const auto& family : families()) {
    if (family.model_type == config.family) config.architecture = family.read(reader);
  }
  if (config.architecture) return config;
  if (config.family.empty()) {
    reader.fail(
        fmt::format("has no model_type: write \"model_type\" and one of {}", family_names()));
  }
  reader.fail(fmt::format("model_type {} is not supported ({})", config.family, family_names()));
}

HfConfig read_hf_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!fs::exists(path)) {
    throw UserError(fmt::format(
        "{}: no config.json there; model_name_or_path must name a Hugging Face model folder{}",
        folder.string(), download_advice(folder)));
  }
  return parse_hf_config(read_beneath(folder, "config.json", kLimits.bytes), path.string());
}

std::string attention_dropout_advice(const char* key, double probability) {
  if (probability == 0) return "";
  return fmt::format(
      "config.json: {} is {}: in training, attention takes the unfused path, which holds two "
      "(batch, heads, tokens, tokens) tensors per block and is slower, the more the longer the "
      "rows. Set {} to 0 there for the fused kernel",
      key, probability, key);
}

std::string hf_config_json(const HfConfig& config, const std::string& dtype) {
  auto json = nlohmann::ordered_json::parse(config.source);  // keys stay in their order
  // transformers 5 writes and reads dtype; 4 wrote torch_dtype. Keep the file's own word.
  const bool old_word = json.contains("torch_dtype");
  if (old_word) json["torch_dtype"] = dtype;
  if (!old_word || json.contains("dtype")) json["dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace skein::plan
