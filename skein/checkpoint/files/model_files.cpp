// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/model_files.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "skein/checkpoint/files/model_check.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"
#include "skein/core/system_failure.h"

namespace skein::checkpoint {
namespace {

constexpr JsonLimits kIndexLimits{.bytes = uint64_t{256} << 20, .depth = 8};

std::map<std::string, std::string> read_weight_map(const fs::path& folder,
                                                   const std::string& name) {
  const auto file = open_beneath(folder, name);
  const auto path = (folder / name).string();
  if (file.size() > kIndexLimits.bytes) throw IoError(path + " is too large for an index");
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  try {
    const auto index = parse_json<IoError>(text, path, kIndexLimits);
    return index.at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception& error) {
    throw IoError(fmt::format("{}: {}", path, error.what()));
  }
}

void add_file(ModelFiles& model, const std::string& name) {
  File file;
  Header header;
  try_again([&] {
    file = open_beneath(model.folder, name);
    header = read_header(file, (model.folder / name).string());
  });
  model.files.push_back({name, std::move(file), std::move(header)});
}

void list_tensors(ModelFiles& model) {
  for (const auto& file : model.files) {
    for (const auto& tensor : file.header.tensors) {
      const auto [other, is_new] =
          model.tensors.try_emplace(tensor.name, StoredTensor{&file, &tensor});
      if (!is_new) {
        throw IoError(fmt::format("{}: tensor '{}' is in {} and in {}", model.folder.string(),
                                  tensor.name, other->second.file->name, file.name));
      }
    }
  }
}

// An index that promises what its files do not hold means a shard of another model.
void check_weight_map(const ModelFiles& model,
                      const std::map<std::string, std::string>& weight_map) {
  for (const auto& [tensor, file] : weight_map) {
    const auto found = model.tensors.find(tensor);
    if (found == model.tensors.end() || found->second.file->name != file) {
      throw IoError(fmt::format("{}: the index says that {} holds tensor '{}', and it does not",
                                model.folder.string(), file, tensor));
    }
  }
}

// For a shell.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+:@%-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// What a user who trusts the file can type: it writes safetensors beside it.
constexpr const char* kConvertModel =
    "from transformers import AutoModelForCausalLM as M; "
    "M.from_pretrained(sys.argv[1], torch_dtype='auto').save_pretrained(sys.argv[1])";
constexpr const char* kConvertAdapter =
    "import torch; from safetensors.torch import save_file; d = sys.argv[1] + '/adapter_model.'; "
    "t = torch.load(d + 'bin', map_location='cpu', weights_only=True); "
    "save_file({k: v.contiguous() for k, v in t.items()}, d + 'safetensors', {'format': 'pt'})";

}  // namespace

std::string no_weights_message(const fs::path& folder, const std::string& stem) {
  const bool adapter = stem == kAdapterStem;
  const auto pickle = (adapter ? stem : "pytorch_" + stem) + ".bin";
  auto why = fmt::format(
      "{0} holds neither {1}.safetensors nor {1}.safetensors.index.json; pickle files "
      "(.bin, .pt) are not read",
      folder.string(), stem);
  if (!fs::exists(folder / pickle) && !fs::exists(folder / (pickle + ".index.json"))) return why;
  return fmt::format(
      "{}: they can run code. If you trust {}, this writes safetensors beside it:\n"
      "  python3 -c \"import sys; {}\" {}",
      why, pickle, adapter ? kConvertAdapter : kConvertModel, quoted(folder.string()));
}

ModelFiles open_model_files(const fs::path& folder, const std::string& stem) try {
  ModelFiles model{.folder = folder};
  const auto single = stem + ".safetensors", index = single + ".index.json";
  if (fs::exists(fs::symlink_status(folder / single))) {
    add_file(model, single);
    list_tensors(model);
    return model;
  }
  if (!fs::exists(fs::symlink_status(folder / index))) {
    throw UserError(no_weights_message(folder, stem));
  }
  const auto weight_map = read_weight_map(folder, index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : weight_map) {
    if (!is_plain_name(file)) {
      throw IoError(fmt::format("{}: '{}' is not a plain file name", folder.string(), file));
    }
    names.insert(file);
  }
  for (const auto& name : names) add_file(model, name);
  list_tensors(model);
  check_weight_map(model, weight_map);
  return model;
} catch (const std::runtime_error&) {
  refuse_if_gone(folder);
  throw;
}

}  // namespace skein::checkpoint
