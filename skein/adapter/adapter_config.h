// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// PEFT's adapter_config.json: what does an adapter change, and how strongly?
//
// Free of torch: the bytes come from outside. Keys that would change the result and that we do not
// compute are refused by name; what only describes how an adapter was made is kept and written
// back.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "skein/core/file.h"

namespace skein::adapter {

inline constexpr const char* kConfigName = "adapter_config.json";
// The task_type of an adapter whose model scores texts.
inline constexpr const char* kScores = "SEQ_CLS";

// Which modules does a key mean?
struct ModuleChoice {
  enum class Kind {
    kNone,
    kNames,      // equal, or what follows a dot
    kPattern,    // a Python regular expression that matches the whole name
    kAllLinear,  // every linear layer but the output head
  };
  Kind kind = Kind::kNone;
  std::vector<std::string> names;
  std::string pattern;

  bool operator==(const ModuleChoice&) const = default;
};

// Patterns of the ends of module names, in the file's order: the first that matches counts.
template <typename Value>
using ModuleValues = std::vector<std::pair<std::string, Value>>;

struct AdapterConfig {
  std::string base_model;  // base_model_name_or_path; may be empty
  std::string task_type;   // may be empty
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool use_rslora = false;
  bool use_dora = false;
  bool fan_in_fan_out = false;  // only written: the layer decides, as in PEFT
  bool ensure_weight_tying = false;
  ModuleChoice targets;
  ModuleChoice excluded;
  std::vector<std::string> modules_to_save;
  std::vector<int64_t> layers;  // layers_to_transform; empty: all
  ModuleValues<int64_t> rank_pattern;
  ModuleValues<double> alpha_pattern;
  nlohmann::ordered_json others = nlohmann::ordered_json::object();  // keys that are only kept

  static constexpr int64_t kMaxRank = 65536;
};

// `origin` names the text in messages. Throws UserError naming file and key.
AdapterConfig parse_adapter_config(std::string_view text, const std::string& origin);
// Reads FOLDER/adapter_config.json. Throws UserError when there is none.
AdapterConfig read_adapter_config(const fs::path& folder);

// A name of modules_to_save that PEFT adds for models that score, whatever their head is called.
inline bool may_be_absent(const AdapterConfig& config, const std::string& module) {
  return config.task_type == kScores && module == "classifier";
}

// As PEFT writes it: keys sorted, two spaces; parse_adapter_config() reads it back.
std::string adapter_config_json(const AdapterConfig& config);

}  // namespace skein::adapter
