// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/run_model.h"

#include <fmt/format.h>

#include <cmath>

#include "skein/core/error.h"
#include "skein/core/json.h"
#include "skein/text/new_tokens.h"
#include "skein/text/text_codec.h"

namespace skein::plan {
namespace {

using nlohmann::ordered_json;

bool scales_rope(const config::ModelConfig& model) {
  return !model.rope_scaling.empty() && model.rope_scaling != "none";
}

// By how much positions are stretched: as asked, or as the longest row needs. 1: not at all.
double rope_factor(const config::RunConfig& config, int64_t positions) {
  const double asked = config.model.rope_scaling_factor;
  if (asked > 0 && asked < 1) {
    throw UserError(fmt::format(
        "rope_scaling_factor is {}, expected 0 (as the longest row needs) or at least 1", asked));
  }
  if (asked > 0) return asked;
  return std::ceil(static_cast<double>(config.data.block_size) / static_cast<double>(positions));
}

// How positions are stretched.
struct Stretch {
  std::string type = "default";  // not at all
  double factor = 1;

  bool operator==(const Stretch&) const = default;
};

// As config.json says it. The keys in the order in which read_rope() asks for them.
Stretch stretch_of(const ordered_json& json) {
  Stretch stretch;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!json.contains(key) || !json.at(key).is_object()) continue;
    const auto& all = json.at(key);
    const auto& object = all.contains("full_attention") ? all.at("full_attention") : all;
    if (object.contains("factor") && object.at("factor").is_number()) {
      stretch.factor = object.at("factor");
    }
    for (const char* name : {"rope_type", "type"}) {
      if (!object.contains(name) || !object.at(name).is_string()) continue;
      stretch.type = object.at(name);
      return stretch;
    }
  }
  return stretch;
}

void check_can_stretch(const config::ModelConfig& asked, const HfConfig& model) {
  const std::string why = model.dimensions().positions_are_learned
                              ? "has learned positions, which cannot be stretched"
                              : model.architecture->stretch_refusal();
  if (why.empty()) return;
  throw UserError(fmt::format("rope_scaling={}: a {} model {}; drop it", asked.rope_scaling,
                              model.family, why));
}

void check_not_stretched(const config::ModelConfig& asked, const Stretch& own) {
  if (own.type == "default") return;
  throw UserError(fmt::format(
      "rope_scaling={}: config.json stretches positions already ({}, factor {}), which this would "
      "undo, not go on with; drop it, or change config.json",
      asked.rope_scaling, own.type, own.factor));
}

// What one object of config.json becomes: its base and its share of channels stay.
ordered_json scaled_object(const ordered_json& old, const ordered_json& scaling) {
  auto object = ordered_json::object();
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (old.is_object() && old.contains(key)) object[key] = old.at(key);
  }
  object.update(scaling);
  return object;
}

// In the words of the file's own generation of transformers: rope_parameters (5) where it has it,
// with an object for each kind of layers perhaps, of which only full attention sees far; else
// rope_scaling (4).
void write_scaling(ordered_json& json, const ordered_json& scaling) {
  const auto has = [&](const char* key) { return json.contains(key) && json.at(key).is_object(); };
  if (has("rope_parameters")) {
    auto& object = json["rope_parameters"];
    auto& place = object.contains("full_attention") ? object["full_attention"] : object;
    place = scaled_object(place, scaling);
  }
  if (!has("rope_parameters") || has("rope_scaling")) {
    const auto old = json.value("rope_scaling", ordered_json());
    json["rope_scaling"] = scaled_object(old, scaling);
  }
}

// As LLaMA-Factory does it. `dynamic` stretches what is beyond max_position_embeddings, the more
// the longer a document is: that number stays.
bool scale_rope(const config::RunConfig& config, const HfConfig& model, ordered_json& json) {
  const auto& type = config.model.rope_scaling;
  if (!scales_rope(config.model)) {
    if (config.model.rope_scaling_factor == 0) return false;
    throw UserError(
        "rope_scaling_factor needs rope_scaling: linear, dynamic, yarn or llama3 beside it");
  }
  check_can_stretch(config.model, model);
  const auto positions = model.dimensions().positions;
  const double factor = rope_factor(config, positions);
  const auto own = stretch_of(json);
  if (factor == 1 || own == Stretch{type, factor}) return false;
  check_not_stretched(config.model, own);
  ordered_json scaling = {{"rope_type", type}, {"factor", factor}};
  if (type == "yarn" || type == "llama3") scaling["original_max_position_embeddings"] = positions;
  if (type == "linear") json["original_max_position_embeddings"] = positions;
  if (type == "llama3") {
    scaling["low_freq_factor"] = 1.0;
    scaling["high_freq_factor"] = 4.0;
  }
  write_scaling(json, scaling);
  if (type != "dynamic") {
    json["max_position_embeddings"] = std::llround(static_cast<double>(positions) * factor);
  }
  return true;
}

// Spare rows, beyond the tokenizer's ids, are used before any is added.
bool grow_vocabulary(const config::ModelConfig& asked, const HfConfig& model, ordered_json& json) {
  const auto& tokens = asked.new_special_tokens;
  if (tokens.empty() && !asked.resize_vocab) return false;
  const auto codec = text::open_codec(asked);
  if (codec->is_bytes()) {
    if (tokens.empty()) return false;
    throw UserError(
        "new_special_tokens: tokens are bytes here, to which none can be added; give "
        "tokenizer_name_or_path=FOLDER with a tokenizer.json");
  }
  const auto rows = model.dimensions().vocabulary, needed = codec->vocab_size();
  if (needed <= rows) return false;
  if (!asked.resize_vocab) {
    if (tokens.empty()) return false;
    throw UserError(fmt::format(
        "new_special_tokens: with them the tokenizer has {} ids, but the model has rows for {}; "
        "resize_vocab=true gives it the rows that it lacks",
        needed, rows));
  }
  json["vocab_size"] = needed;
  return true;
}

}  // namespace

namespace {

HfConfig read_text_model(const config::RunConfig& config) {
  const fs::path folder = config.model.model_name_or_path;
  auto model = read_hf_config(folder);
  check_not_quantised(model.source, (folder / "config.json").string());
  auto json = parse_ordered_json(model.source);  // keys stay in their order
  const bool scaled = scale_rope(config, model, json);
  const bool grown = grow_vocabulary(config.model, model, json);
  if (!scaled && !grown) return model;
  return parse_hf_config(json.dump(2), (folder / "config.json").string());
}

}  // namespace

HfConfig read_run_model(const config::RunConfig& config) {
  auto model = read_text_model(config);
  if (config.stage == config::TrainingStage::kReward) return with_score(model);
  require_text(model, config.model.model_name_or_path);
  return model;
}

void require_text(const HfConfig& model, const fs::path& folder) {
  if (!model.dimensions().scores) return;
  throw UserError(
      fmt::format("'{}' is a reward model: it scores texts and writes none. stage: rm goes on with "
                  "it, `skein eval` measures it; for all else name the model it was made from",
                  folder.string()));
}

void add_new_tokens(const config::ModelConfig& model, std::map<std::string, std::string>& files) {
  const auto found = files.find("tokenizer.json");
  if (model.new_special_tokens.empty() || found == files.end()) return;
  const auto tokens =
      text::new_special_tokens(found->second, model.new_special_tokens, found->first);
  found->second = text::with_tokens(found->second, tokens);
  if (const auto config = files.find("tokenizer_config.json"); config != files.end()) {
    config->second = text::config_with_tokens(config->second, tokens);
  }
}

bool stretches_positions(const config::RunConfig& config) {
  const auto model = read_hf_config(config.model.model_name_or_path);
  auto json = parse_ordered_json(model.source);
  return scale_rope(config, model, json);
}

std::string rope_scaling_note(const config::RunConfig& config) {
  if (!scales_rope(config.model)) return "";
  const auto positions = read_hf_config(config.model.model_name_or_path).dimensions().positions;
  if (rope_factor(config, positions) != 1) return "";
  return fmt::format(
      "rope_scaling={}: nothing is stretched, since {} tokens fit into the model's {} positions; "
      "rope_scaling_factor asks for more",
      config.model.rope_scaling, config.data.block_size, positions);
}

}  // namespace skein::plan
