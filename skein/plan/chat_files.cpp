// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/chat_files.h"

#include <algorithm>
#include <array>
#include <optional>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/data/rows/open_encoder.h"
#include "skein/text/chat_template.h"
#include "skein/text/tokenizer_files.h"
#include "skein/text/turn_end.h"

namespace skein::plan {
namespace {

using Json = nlohmann::ordered_json;  // keys stay in their order

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kEnds = "eos_token_id";
constexpr std::array kIds = {"bos_token_id", kEnds, "pad_token_id"};

Json object_of(const std::string& text, const std::string& name) {
  try {
    if (auto object = parse_ordered_json(text); object.is_object()) return object;
  } catch (const JsonError& error) {
    throw UserError(json_message(error, text, name));
  }
  throw UserError(name + ": no JSON object");
}

void set_template(const text::ChatTemplate& chat, bool is_given, TextFiles& files) {
  Json config = Json::object();
  if (const auto found = files.find(kConfig); found != files.end()) {
    config = object_of(found->second, kConfig);
  }
  if (!is_given && (files.contains(kTemplate) || config.contains("chat_template"))) return;
  if (is_given) {  // others, for conversations with tools say, were not trained with
    std::erase_if(files, [](const auto& file) {
      return fs::path(file.first).parent_path() == text::kTemplateFolder;
    });
  }
  files[kTemplate] = chat.text();
  // Programs that do not know the file would go by another template.
  if (config.erase("chat_template") > 0) files[kConfig] = config.dump(2) + "\n";
}

text::TokenizerNames names_of(const TextFiles& files) {
  return text::tokenizer_names("", [&](const char* name) {
    const auto found = files.find(name);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
}

// What transformers goes by where there is no generation_config.json.
Json generation_of(const Json& config) {
  Json generation = Json::object();
  for (const char* key : kIds) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  return generation;
}

Json list_of(const Json& object, const char* key) {
  if (!object.contains(key) || object[key].is_null()) return Json::array();
  return object[key].is_array() ? object[key] : Json::array({object[key]});
}

bool holds(const Json& object, const char* key, uint32_t id) {
  const auto ids = list_of(object, key);
  return std::ranges::find(ids, Json(id)) != ids.end();
}

// The ids of a model, in config.json and generation_config.json.
struct ModelIds {
  Json config, generation;

  // What the tokenizer says is so: one id.
  void set(const char* key, std::optional<uint32_t> id) {
    if (!id || (holds(config, key, *id) && holds(generation, key, *id))) return;
    config[key] = *id;
    generation[key] = *id;
  }

  // An end of the tokenizer's is the first; any of a list ends a generation, so lists keep theirs.
  void set_end(std::optional<uint32_t> id) {
    if (!id || (holds(config, kEnds, *id) && holds(generation, kEnds, *id))) return;
    const bool is_list = config.contains(kEnds) && config[kEnds].is_array();
    config[kEnds] = is_list ? with_first(*id, config) : Json(*id);
    generation[kEnds] = with_first(*id, generation);
  }

  static void add_end(std::optional<uint32_t> id, Json& object) {
    if (!id || holds(object, kEnds, *id)) return;
    auto ends = list_of(object, kEnds);
    ends.push_back(*id);
    object[kEnds] = ends.size() == 1 ? ends[0] : ends;
  }

 private:
  static Json with_first(uint32_t id, const Json& object) {
    auto ends = Json::array({id});
    for (const auto& other : list_of(object, kEnds)) {
      if (other != id) ends.push_back(other);
    }
    return ends.size() == 1 ? ends[0] : ends;
  }
};

}  // namespace

AlignedIds align_ids(const std::string& config_text, const TextFiles& files,
                     const std::optional<text::ChatTemplate>& chat) {
  const auto names = names_of(files);
  const auto tokenizer =
      text::Tokenizer::parse(files.at("tokenizer.json"), "tokenizer.json", names);
  const auto config = object_of(config_text, "config.json");
  const auto found = files.find(kGeneration);
  ModelIds ids{.config = config,
               .generation = found == files.end() ? generation_of(config)
                                                  : object_of(found->second, kGeneration)};
  if (names.eos) ids.set_end(tokenizer.eos_id());
  ids.set("bos_token_id", tokenizer.bos_id());
  ids.set("pad_token_id", tokenizer.pad_id());
  ModelIds::add_end(tokenizer.eos_id(), ids.generation);
  if (chat) {
    const auto turn_end = find_turn_end(*chat, tokenizer).token;
    ModelIds::add_end(turn_end, ids.config);
    ModelIds::add_end(turn_end, ids.generation);
  }
  Json changes = Json::object();
  for (const char* key : kIds) {
    if (ids.config.contains(key) && (!config.contains(key) || config[key] != ids.config[key])) {
      changes[key] = ids.config[key];
    }
  }
  return {.config_changes = changes.dump(), .generation = ids.generation.dump(2) + "\n"};
}

std::string add_chat_files(const config::ModelConfig& model, const config::RowsConfig& rows,
                           TextFiles& files) {
  if (!files.contains("tokenizer.json")) return "{}";
  const bool is_given = !rows.chat_format.empty() || !rows.chat_template.empty();
  const auto chat =
      text::ChatTemplate::find({.folder = text::tokenizer_place(data::tokenizer_path(model)).folder,
                                .file = rows.chat_template,
                                .name = rows.chat_format});
  if (chat) set_template(*chat, is_given, files);
  const fs::path folder = model.model_name_or_path;
  const bool has_config = fs::exists(folder / "config.json");
  auto aligned = align_ids(has_config ? read_beneath(folder, "config.json") : "{}", files, chat);
  files[kGeneration] = std::move(aligned.generation);
  return aligned.config_changes;
}

std::string with_changes(const std::string& config, const std::string& changes) {
  auto json = parse_ordered_json(config);
  json.update(parse_ordered_json(changes));
  return json.dump(2) + "\n";
}

}  // namespace skein::plan
