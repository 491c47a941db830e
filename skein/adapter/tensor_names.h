// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are the tensors of an adapter called in PEFT's file?

#include <string>
#include <string_view>
#include <vector>

namespace skein::adapter {

inline constexpr std::string_view kNamePrefix = "base_model.model.";

// What the tensors of an adapter are called behind the name of their module.
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
inline constexpr const char* kEmbeddingA = ".lora_embedding_A";
inline constexpr const char* kEmbeddingB = ".lora_embedding_B";
inline constexpr const char* kMagnitude = ".lora_magnitude_vector";  // DoRA's
// Between a module's name and ".weight": the base's own, stored beside the adapter of it.
inline constexpr const char* kBaseLayer = ".base_layer";

// "base_model.model.NAME": of adapters (NAME is MODULE.lora_A.weight, …), and of modules that train
// whole.
inline std::string file_name(const std::string& parameter) {
  return std::string(kNamePrefix) + parameter;
}

// Is this parameter part of an adapter, and not of the model?
inline bool is_adapter_tensor(std::string_view parameter) {
  return parameter.find(".lora_") != std::string_view::npos;
}

namespace detail {

// What trains is there; of the base's own weights, PEFT stores the embedding and the head in some
// cases.
template <typename Files>
std::string stored_name(const std::string& parameter, bool trainable, const Files& files) {
  auto name = file_name(parameter);
  if (trainable || files.contains(name)) return name;
  name.insert(name.rfind('.'), kBaseLayer);
  return files.contains(name) ? name : "";
}

// Where the head is the embedding, PEFT may store it under the head's name: bare, or as what an
// adapter of the head lies on. Empty: not so.
template <typename Parameters, typename Files>
std::string embedding_under_head(const Parameters& parameters, const Files& files) {
  const std::string head = "lm_head";
  for (const auto& parameter : parameters) {
    if (parameter.name == head + ".weight") return "";
  }
  for (const char* inner : {"", kBaseLayer}) {
    auto name = file_name(head) + inner + ".weight";
    if (files.contains(name)) return name;
  }
  return "";
}

}  // namespace detail

// The names under which `files` (a map by name) hold a model's parameters, in their order, of which
// the embedding is the first; empty: they need not.
template <typename Parameters, typename Files>
std::vector<std::string> stored_names(const Parameters& parameters, const Files& files) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) {
    names.push_back(detail::stored_name(parameter.name, parameter.trainable, files));
  }
  if (!names.empty() && names.front().empty()) {
    names.front() = detail::embedding_under_head(parameters, files);
  }
  return names;
}

// The name under which they hold the embedding once more, because it is the head too (PEFT's
// save_embedding_layers): one tensor, and so the same values. Empty: they do not.
template <typename Parameters, typename Files>
std::string embedding_again(const Parameters& parameters, const Files& files) {
  if (parameters.empty()) return "";
  const auto& embedding = parameters.front();
  if (detail::stored_name(embedding.name, embedding.trainable, files).empty()) return "";
  return detail::embedding_under_head(parameters, files);
}

}  // namespace skein::adapter
