// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/base_model.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "skein/checkpoint/files/tensor_match.h"
#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/plan/hf_config.h"

namespace skein::convert {

std::string BaseModel::embedding_name() const {
  constexpr std::array<std::string_view, 4> kNames = {"embed_tokens.weight", "wte.weight",
                                                      "embed_in.weight", "word_embeddings.weight"};
  for (const auto& file : files.files) {
    for (const auto& tensor : file.header.tensors) {
      for (const auto name : kNames) {
        if (tensor.name == name || tensor.name.ends_with("." + std::string(name))) {
          return tensor.name;
        }
      }
    }
  }
  return "";
}

bool BaseModel::has_transposed_layers() const {
  constexpr std::array<std::string_view, 4> kTypes = {"gpt2", "openai-gpt", "imagegpt",
                                                      "decision_transformer"};
  return std::ranges::find(kTypes, model_type) != kTypes.end();
}

BaseModel open_base_model(const fs::path& folder) {
  constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
  BaseModel base{.folder = folder,
                 .files = {},
                 .config = read_beneath(folder, "config.json", kMaxConfigBytes),
                 .model_type = ""};
  const auto origin = (folder / "config.json").string();
  plan::check_not_quantised(base.config, origin);
  const auto config = JsonObject::parse(base.config, origin);
  config.read("model_type", base.model_type);
  base.files = checkpoint::open_model_files(folder);
  base.tied_head = !base.files.tensors.contains(kHeadName);
  config.read("tie_word_embeddings", base.tied_head);
  const auto text = config.object("text_config");
  (text ? *text : config).read("num_hidden_layers", base.num_layers);
  return base;
}

std::string changed_config(const BaseModel& base, const ConfigChanges& changes) {
  const auto text = changes.scores ? plan::config_with_score(base.config) : base.config;
  auto config = parse_ordered_json(text);
  const auto set_dtype = [&](nlohmann::ordered_json& object) {
    // transformers 5 writes and reads dtype; 4 wrote torch_dtype. The file's own word stays.
    for (const char* word : {"torch_dtype", "dtype"}) {
      if (object.contains(word)) object[word] = std::string(dtype_word(*changes.dtype));
    }
  };
  if (changes.dtype) {
    if (!config.contains("dtype") && !config.contains("torch_dtype")) config["dtype"] = "";
    set_dtype(config);
    for (const char* part : {"text_config", "vision_config"}) {
      if (config.contains(part) && config[part].is_object()) set_dtype(config[part]);
    }
  }
  if (changes.untie_head) config["tie_word_embeddings"] = false;
  if (changes.vocab_size) config["vocab_size"] = *changes.vocab_size;
  return config.dump(2) + "\n";
}

}  // namespace skein::convert
