// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/model_texts.h"

#include "skein/core/file.h"
#include "skein/core/folder.h"
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

}  // namespace

ModelTexts texts_beside_weights(const config::RunConfig& config) {
  ModelTexts texts{.files = carried_files(config)};
  if (trains_on_rows(config)) {
    texts.config_changes = add_chat_files(config.model, config.rows, texts.files);
  }
  return texts;
}

}  // namespace skein::plan
