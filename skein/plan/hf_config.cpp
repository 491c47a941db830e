// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/plan/families/config_reader.h"
#include "skein/plan/families/families.h"
#include "skein/plan/model_folder.h"

namespace skein::plan {
namespace {

constexpr JsonLimits kLimits{.bytes = uint64_t{16} << 20, .depth = 64};
constexpr std::string_view kText = "ForCausalLM", kScore = "ForSequenceClassification";

// The class that transformers would make; empty: the file does not say.
std::string class_of(const nlohmann::ordered_json& json) {
  const auto found = json.find("architectures");
  if (found == json.end() || !found->is_array() || found->empty()) return "";
  return found->front().is_string() ? found->front().get<std::string>() : "";
}

// As transformers calls the classes of a family: qwen2 is Qwen2, gemma3_text Gemma3Text.
std::string family_class(const std::string& model_type) {
  if (model_type == "gpt2") return "GPT2";
  std::string name;
  for (bool begins = true; const char c : model_type) {
    if (c != '_') name += begins ? static_cast<char>(std::toupper(c)) : c;
    begins = c == '_';
  }
  return name;
}

int64_t num_labels(const nlohmann::ordered_json& json) {
  if (const auto labels = json.find("id2label"); labels != json.end() && labels->is_object()) {
    return static_cast<int64_t>(labels->size());
  }
  const auto count = json.find("num_labels");
  return count != json.end() && count->is_number_integer() ? count->get<int64_t>() : 2;
}

// A reward model is a classifier of one label.
void read_score(std::string_view text, const ConfigReader& reader, HfConfig& config) {
  const auto json = parse_ordered_json(text);
  if (!class_of(json).ends_with(kScore)) return;
  const auto labels = num_labels(json);
  if (labels != 1) {
    reader.fail(
        fmt::format("is a classifier with {} labels (id2label): of these only reward "
                    "models are computed, which have one",
                    labels));
  }
  auto scored = config.architecture->scored();
  if (!scored) reader.fail(fmt::format("model_type {} has no head that scores", config.family));
  config.architecture = std::move(scored);
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
  if (config.architecture) {
    read_score(text, reader, config);
    return config;
  }
  if (config.family.empty()) {
    reader.fail(
        fmt::format("has no model_type: write \"model_type\" and one of {}", family_names()));
  }
  reader.fail(fmt::format("model_type {} is not supported ({})", config.family, family_names()));
}

HfConfig read_hf_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  if (!fs::exists(path)) throw UserError(no_model_message(folder));
  return parse_hf_config(read_beneath(folder, "config.json", kLimits.bytes), path.string());
}

void check_not_quantised(std::string_view text, const std::string& origin) {
  const auto config = JsonObject::parse(text, origin, kLimits);
  if (config.find("quantization_config") == nullptr) return;
  config.refuse(
      "the model is quantised (quantization_config); name the one that it was made from, or take "
      "the key out where the weights are ordinary ones");
}

std::string dropout_refusal(const char* key, double probability) {
  return fmt::format("config.json: {} is {}, and a prompt would draw once for all of its answers",
                     key, probability);
}

std::string attention_dropout_advice(const char* key, double probability) {
  if (probability == 0) return "";
  return fmt::format(
      "config.json: {} is {}: in training, attention takes the unfused path, which holds two "
      "(batch, heads, tokens, tokens) tensors per block and is slower, the more the longer the "
      "rows. Set {} to 0 there for the fused kernel",
      key, probability, key);
}

HfConfig with_score(const HfConfig& config) {
  if (config.dimensions().scores) return config;
  HfConfig scored = config;
  scored.architecture = config.architecture->scored();
  if (!scored.architecture) {
    throw UserError(fmt::format("stage: rm: a {} model has no head that scores", config.family));
  }
  scored.source = config_with_score(config.source);
  return scored;
}

std::string config_with_score(const std::string& config) {
  auto json = parse_ordered_json(config);  // keys stay in their order
  auto name = class_of(json);
  if (name.ends_with(kScore)) return config;
  if (name.empty()) name = family_class(json.value("model_type", ""));
  if (const auto at = name.find(kText); at != std::string::npos) name.erase(at);
  for (const std::string_view ending : {"LMHeadModel", "Model"}) {  // GPT-2's, and a base's
    if (name.ends_with(ending)) name.erase(name.size() - ending.size());
  }
  // Gemma 3's text models are called as those with a picture tower, but not where they classify.
  if (json.value("model_type", "") == "gemma3_text") name = family_class("gemma3_text");
  json["architectures"] = {name + std::string(kScore)};
  json["id2label"] = {{"0", "LABEL_0"}};
  json["label2id"] = {{"LABEL_0", 0}};
  return json.dump(2);
}

std::string hf_config_json(const HfConfig& config, const std::string& dtype) {
  auto json = parse_ordered_json(config.source);  // keys stay in their order
  // transformers 5 writes and reads dtype; 4 wrote torch_dtype. Keep the file's own word.
  const bool old_word = json.contains("torch_dtype");
  if (old_word) json["torch_dtype"] = dtype;
  if (!old_word || json.contains("dtype")) json["dtype"] = dtype;
  return json.dump(2) + "\n";
}

}  // namespace skein::plan
