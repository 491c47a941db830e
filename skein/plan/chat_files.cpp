// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/chat_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/text/chat_template.h"
#include "skein/text/turn_end.h"

namespace skein::plan {
namespace {

using Files = std::map<std::string, std::string>;
using Json = nlohmann::ordered_json;  // keys stay in their order

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kTemplate = "chat_template.jinja";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kEnds = "eos_token_id";

// Of the tokenizer's files.
fs::path tokenizer_folder(const config::ModelConfig& model) {
  const fs::path given = model.tokenizer_name_or_path;
  if (given.empty()) return model.model_name_or_path;
  return fs::is_directory(given) ? given : given.parent_path();
}

Json object_of(const std::string& text, const std::string& name) {
  if (!parse_json<UserError>(text, name).is_object()) throw UserError(name + ": no JSON object");
  return Json::parse(text);
}

void set_template(const text::ChatTemplate& chat, bool is_given, Files& files) {
  Json config = Json::object();
  if (const auto found = files.find(kConfig); found != files.end()) {
    config = object_of(found->second, kConfig);
  }
  if (!is_given && (files.contains(kTemplate) || config.contains("chat_template"))) return;
  files[kTemplate] = chat.text();
  // Programs that do not know the file would go by another template.
  if (config.erase("chat_template") > 0) files[kConfig] = config.dump(2) + "\n";
}

text::Tokenizer tokenizer_of(const Files& files) {
  text::TokenizerNames names;
  for (const char* name : {kConfig, "special_tokens_map.json"}) {
    const auto found = files.find(name);
    if (found == files.end()) continue;
    const auto said = text::parse_tokenizer_config(found->second, name);
    if (!names.bos) names.bos = said.bos;
    if (!names.eos) names.eos = said.eos;
  }
  return text::Tokenizer::parse(files.at("tokenizer.json"), "tokenizer.json", names);
}

// What transformers goes by where there is no generation_config.json.
Json generation_of(const fs::path& model_folder) {
  Json generation = Json::object();
  const auto path = model_folder / "config.json";
  if (!fs::exists(path)) return generation;
  const auto config = object_of(read_beneath(model_folder, "config.json"), path.string());
  for (const char* key : {"bos_token_id", kEnds, "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) generation[key] = config[key];
  }
  return generation;
}

void add_ends(const std::vector<uint32_t>& added, Json& generation) {
  Json ends = Json::array();
  if (generation.contains(kEnds) && !generation[kEnds].is_null()) {
    ends = generation[kEnds].is_array() ? generation[kEnds] : Json::array({generation[kEnds]});
  }
  for (const uint32_t id : added) {
    if (std::ranges::find(ends, Json(id)) == ends.end()) ends.push_back(id);
  }
  if (!ends.empty()) generation[kEnds] = ends.size() == 1 ? Json(ends[0]) : ends;
}

}  // namespace

void add_chat_files(const config::ModelConfig& model, const config::RowsConfig& rows,
                    std::map<std::string, std::string>& files) {
  if (!files.contains("tokenizer.json")) return;
  const bool is_given = !rows.chat_format.empty() || !rows.chat_template.empty();
  const auto chat = text::ChatTemplate::find(
      {.folder = tokenizer_folder(model), .file = rows.chat_template, .name = rows.chat_format});
  if (chat) set_template(*chat, is_given, files);

  const auto tokenizer = tokenizer_of(files);
  std::vector<uint32_t> ends;
  const auto add = [&](std::optional<uint32_t> id) {
    if (id) ends.push_back(*id);
  };
  add(tokenizer.eos_id());
  if (chat) add(find_turn_end(*chat, tokenizer).token);
  const auto found = files.find(kGeneration);
  auto generation = found == files.end() ? generation_of(model.model_name_or_path)
                                         : object_of(found->second, kGeneration);
  add_ends(ends, generation);
  files[kGeneration] = generation.dump(2) + "\n";
}

}  // namespace skein::plan
