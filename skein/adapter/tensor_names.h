// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are the tensors of an adapter called in PEFT's file?

#include <string>
#include <string_view>

namespace skein::adapter {

inline constexpr std::string_view kNamePrefix = "base_model.model.";

// "base_model.model.NAME": of adapters (NAME is MODULE.lora_A.weight, …), and of modules that train
// whole.
inline std::string file_name(const std::string& parameter) {
  return std::string(kNamePrefix) + parameter;
}

// Is this parameter part of an adapter, and not of the model?
inline bool is_adapter_tensor(std::string_view parameter) {
  return parameter.find(".lora_") != std::string_view::npos;
}

// The name under which `files` (a map by name) hold a parameter; empty: they need not. What trains
// is there; of the base's own weights, PEFT stores the embedding and the head in some cases.
template <typename Files>
std::string stored_name(const std::string& parameter, bool trainable, const Files& files) {
  auto name = file_name(parameter);
  if (trainable || files.contains(name)) return name;
  const auto last = name.rfind('.');
  name.insert(last, ".base_layer");
  return files.contains(name) ? name : "";
}

}  // namespace skein::adapter
