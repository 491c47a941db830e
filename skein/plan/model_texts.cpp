// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/model_texts.h"

#include <algorithm>
#include <optional>

#include "skein/core/file.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/data/rows/open_encoder.h"
#include "skein/plan/chat_files.h"
#include "skein/plan/model_folder.h"
#include "skein/plan/run_data.h"
#include "skein/plan/run_model.h"
#include "skein/text/tokenizer_files.h"

namespace skein::plan {
namespace {

constexpr const char* kGeneration = "generation_config.json";

std::map<std::string, std::string> carried_files(const config::RunConfig& config) {
  const auto& model = config.model;
  std::map<std::string, std::string> files;
  const ModelFolder parts{.weights = model.model_name_or_path,
                          .adapter = config.finetune.adapter_name_or_path};
  const auto folder = parts.folder_of(kGeneration);
  if (fs::exists(folder / kGeneration)) files[kGeneration] = read_beneath(folder, kGeneration);
  const auto path = data::tokenizer_path(model);
  if (model.tokenizer_name_or_path == "bytes" || !fs::exists(path)) return files;
  const auto place = text::tokenizer_place(path);
  if (place.file == path) files["tokenizer.json"] = read_file(path);  // the user's: maybe a link
  if (!place.folder.empty()) {
    for (const auto& name : text::tokenizer_files_in(place.folder)) {
      if (!files.contains(name)) files[name] = read_beneath(place.folder, name);
    }
  }
  add_new_tokens(model, files);
  return files;
}

// transformers pads batches with the tokenizer's token, and finds scores by the model's: both must
// say the same.
void name_padding(const std::string& token, std::map<std::string, std::string>& files) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto found = files.find(name);
    if (found == files.end()) continue;
    auto json = ordered_json_if_valid(found->second);
    if (!json || !json->is_object()) continue;
    (*json)["pad_token"] = token;
    found->second = json->dump(2) + "\n";
  }
}

// Of a reward model: transformers takes the score of the last token that is no padding, so that
// padding must be a token that ends no text.
std::optional<uint32_t> padding_of(const data::RowTokens& tokens,
                                   const nlohmann::ordered_json& model) {
  const auto& ends = tokens.audit.ends_of_turn;
  const auto is_end = [&](uint32_t id) { return std::ranges::find(ends, id) != ends.end(); };
  const auto said = model.find("pad_token_id");
  const auto& tokenizer = *tokens.tokenizer;
  // Older files say -1 for none.
  const bool is_id = said != model.end() && said->is_number_unsigned() &&
                     said->get<uint64_t>() < tokenizer.vocab_size();
  if (is_id && !is_end(said->get<uint32_t>())) return said->get<uint32_t>();
  for (const auto& id : {tokenizer.pad_id(), tokenizer.bos_id()}) {
    if (id && !is_end(*id)) return id;
  }
  // Nothing else is there; transformers refuses batches without any.
  return ends.empty() ? std::nullopt : std::optional(ends.front());
}

void add_padding(const config::RunConfig& config, ModelTexts& texts) {
  const auto tokens = open_tokens(config);
  const auto model = parse_ordered_json(read_run_model(config).source);
  const auto padding = padding_of(tokens, model);
  if (!padding) return;
  auto changes = parse_ordered_json(texts.config_changes);
  changes["pad_token_id"] = *padding;
  texts.config_changes = changes.dump();
  const auto token = tokens.tokenizer->token_of(*padding);
  if (token) name_padding(*token, texts.files);
}

}  // namespace

ModelTexts texts_beside_weights(const config::RunConfig& config) {
  ModelTexts texts{.files = carried_files(config)};
  if (trains_on_rows(config)) {
    texts.config_changes = add_chat_files(config.model, config.rows, texts.files);
    if (config.stage == config::TrainingStage::kReward) {
      add_padding(config, texts);
    }
  }
  return texts;
}

}  // namespace skein::plan
