// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/foreign_text.h"
#include "skein/core/json.h"
#include "skein/core/log.h"

namespace skein::adapter {
namespace {

using OrderedJson = nlohmann::ordered_json;

// What we compute: written from the struct.
constexpr std::array<std::string_view, 17> kUnderstood = {"alpha_pattern",
                                                          "base_model_name_or_path",
                                                          "bias",
                                                          "ensure_weight_tying",
                                                          "exclude_modules",
                                                          "fan_in_fan_out",
                                                          "layers_to_transform",
                                                          "lora_alpha",
                                                          "lora_dropout",
                                                          "modules_to_save",
                                                          "peft_type",
                                                          "r",
                                                          "rank_pattern",
                                                          "target_modules",
                                                          "task_type",
                                                          "use_dora",
                                                          "use_rslora"};

// Other kinds of adapter: each changes the result, unless it is absent, false or empty.
constexpr std::array<const char*, 14> kRefused = {
    "alora_invocation_tokens", "arrow_config", "kasa_config",     "layer_replication",
    "layers_pattern",          "lora_bias",    "megatron_config", "monteclora_config",
    "target_parameters",       "use_bdlora",   "use_qalora",      "velora_config",
    "trainable_token_indices", "use_kasa"};

// How an adapter was begun or is run: nothing that its tensors do not say.
constexpr std::array<std::string_view, 13> kKept = {
    "auto_mapping", "corda_config",   "eva_config",    "inference_mode", "init_lora_weights",
    "loftq_config", "lora_ga_config", "megatron_core", "peft_version",   "qalora_group_size",
    "revision",     "runtime_config", "parent_library"};

// Beginnings that change the base's own weights.
constexpr std::array<std::string_view, 5> kBaseChanging = {"pissa", "olora", "corda", "loftq",
                                                           "lora_ga"};

bool is_off(const nlohmann::json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  return value.is_null() || ((value.is_object() || value.is_array()) && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

std::vector<std::string> names_of(const JsonObject& file, const char* key,
                                  const nlohmann::json& list) {
  std::vector<std::string> names;
  for (const auto& name : list) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
      file.refuse_value(key, "names of modules");
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

ModuleChoice read_choice(const JsonObject& file, const char* key) {
  using Kind = ModuleChoice::Kind;
  const auto* value = file.find(key);
  if (value == nullptr || is_off(*value)) return {};
  if (value->is_array()) return {.kind = Kind::kNames, .names = names_of(file, key, *value)};
  if (!value->is_string()) file.refuse_value(key, "a list of names or a pattern");
  auto pattern = value->get<std::string>();
  auto lower = pattern;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "all-linear") return {.kind = Kind::kAllLinear};
  return {.kind = Kind::kPattern, .pattern = std::move(pattern)};
}

void read_names(const JsonObject& file, const char* key, std::vector<std::string>& names) {
  const auto* value = file.find(key);
  if (value == nullptr) return;
  if (!value->is_array()) file.refuse_value(key, "a list of names");
  names = names_of(file, key, *value);
}

void check_rank(const JsonObject& file, const char* key, int64_t rank) {
  if (rank < 1 || rank > AdapterConfig::kMaxRank) {
    file.refuse(
        fmt::format("{} holds the rank {}, expected 1 to {}", key, rank, AdapterConfig::kMaxRank));
  }
}

void check_alpha(const JsonObject& file, const char* key, double alpha) {
  if (!std::isfinite(alpha) || std::abs(alpha) > 1e6) {
    file.refuse(fmt::format("{} holds {}, expected a scale", key, alpha));
  }
}

// `ordered` is the same file: the order of keys decides which pattern is the first.
template <typename Value, typename Check>
ModuleValues<Value> read_values(const JsonObject& file, const OrderedJson& ordered, const char* key,
                                Check check) {
  ModuleValues<Value> values;
  const auto* object = file.find(key);
  if (object == nullptr) return values;
  if (!object->is_object()) file.refuse_value(key, "an object of patterns and numbers");
  for (const auto& [pattern, value] : ordered.at(key).items()) {
    const bool fits = std::is_integral_v<Value> ? value.is_number_integer() : value.is_number();
    if (!fits)
      file.refuse(
          fmt::format("{}.{} is {}, expected a number", key, shown(pattern), shown(value.dump())));
    values.emplace_back(pattern, value.template get<Value>());
    check(file, key, values.back().second);
  }
  return values;
}

void read_layers(const JsonObject& file, std::vector<int64_t>& layers) {
  const char* const key = "layers_to_transform";
  const auto* value = file.find(key);
  if (value == nullptr) return;
  const auto add = [&](const nlohmann::json& layer) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() > 1'000'000) {
      file.refuse_value(key, "numbers of layers");
    }
    layers.push_back(layer.get<int64_t>());
  };
  if (!value->is_array()) return add(*value);
  for (const auto& layer : *value) add(layer);
}

void refuse_other_kinds(const JsonObject& file) {
  std::string type, bias = "none";
  file.read("peft_type", type);
  if (type != "LORA") {
    file.refuse(fmt::format("peft_type is '{}'; only LORA adapters are read", shown(type)));
  }
  file.read("bias", bias);
  if (bias != "none") {
    file.refuse(fmt::format("bias is '{}': trained biases are not read, only 'none'", shown(bias)));
  }
  for (const auto* key : kRefused) {
    if (const auto* value = file.find(key); value != nullptr && !is_off(*value)) {
      file.refuse(
          fmt::format("{} changes what the adapter computes and is not understood here", key));
    }
  }
  const auto* init = file.find("init_lora_weights");
  if (init == nullptr || !init->is_string()) return;
  const auto& word = init->get_ref<const std::string&>();
  if (std::ranges::any_of(kBaseChanging, [&](auto begin) { return word.starts_with(begin); })) {
    file.refuse(fmt::format(
        "init_lora_weights is '{}', which changes the base's own weights: convert the adapter with "
        "PEFT's save_pretrained(path_initial_model_for_weight_conversion=…) first",
        shown(word)));
  }
}

template <typename List>
bool holds(const List& list, std::string_view key) {
  return std::ranges::find(list, key) != list.end();
}

// PEFT ignores unknown keys with a warning too.
void keep_others(const OrderedJson& ordered, const std::string& origin, AdapterConfig& config) {
  std::string first;
  size_t num_unknown = 0;
  for (const auto& [key, value] : ordered.items()) {
    if (holds(kUnderstood, key)) continue;
    const bool known = holds(kKept, key) || holds(kRefused, std::string_view(key));
    if (!known && !is_off(nlohmann::json(value)) && num_unknown++ == 0) first = key;
    config.others[key] = value;
  }
  if (num_unknown == 0) return;
  const auto more = num_unknown == 1 ? "" : fmt::format(", and so {} more", num_unknown - 1);
  log_warning("{}: the key '{}' is not known; it is kept and has no effect{}", origin, shown(first),
              more);
}

OrderedJson choice_json(const ModuleChoice& choice) {
  using Kind = ModuleChoice::Kind;
  switch (choice.kind) {
    case Kind::kNone:
      return nullptr;
    case Kind::kNames:
      return choice.names;
    case Kind::kPattern:
      return choice.pattern;
    case Kind::kAllLinear:
      return "all-linear";
  }
  return nullptr;
}

template <typename Value>
OrderedJson values_json(const ModuleValues<Value>& values) {
  auto object = OrderedJson::object();
  for (const auto& [pattern, value] : values) object[pattern] = value;
  return object;
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

// Whole numbers as people and PEFT write them: 16, not 16.0.
OrderedJson number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    return static_cast<int64_t>(value);
  }
  return value;
}

}  // namespace

AdapterConfig parse_adapter_config(std::string_view text, const std::string& origin) {
  const auto file = JsonObject::parse(text, origin);
  const auto ordered = parse_ordered_json(text);
  refuse_other_kinds(file);
  AdapterConfig config;
  file.read("base_model_name_or_path", config.base_model);
  file.read("task_type", config.task_type);
  file.read("r", config.rank);
  check_rank(file, "r", config.rank);
  file.read("lora_alpha", config.alpha);
  check_alpha(file, "lora_alpha", config.alpha);
  file.read("lora_dropout", config.dropout);
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    file.refuse_value("lora_dropout", "0 to 1, 1 excluded");
  }
  file.read("use_rslora", config.use_rslora);
  file.read("use_dora", config.use_dora);
  file.read("fan_in_fan_out", config.fan_in_fan_out);
  file.read("ensure_weight_tying", config.ensure_weight_tying);
  config.targets = read_choice(file, "target_modules");
  config.excluded = read_choice(file, "exclude_modules");
  if (config.excluded.kind == ModuleChoice::Kind::kAllLinear) {
    file.refuse_value("exclude_modules", "a list of names or a pattern");
  }
  read_names(file, "modules_to_save", config.modules_to_save);
  read_layers(file, config.layers);
  config.rank_pattern = read_values<int64_t>(file, ordered, "rank_pattern", check_rank);
  config.alpha_pattern = read_values<double>(file, ordered, "alpha_pattern", check_alpha);
  keep_others(ordered, origin, config);
  return config;
}

AdapterConfig read_adapter_config(const fs::path& folder) {
  const auto path = folder / kConfigName;
  if (!fs::exists(path)) {
    throw UserError(fmt::format("'{}' is no adapter: it has no {}", folder.string(), kConfigName));
  }
  constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
  return parse_adapter_config(read_beneath(folder, kConfigName, kMaxBytes), path.string());
}

std::string adapter_config_json(const AdapterConfig& config) {
  OrderedJson known = config.others;
  known["peft_type"] = "LORA";
  known["task_type"] = text_or_null(config.task_type);
  known["base_model_name_or_path"] = text_or_null(config.base_model);
  known["bias"] = "none";
  known["r"] = config.rank;
  known["lora_alpha"] = number(config.alpha);
  known["lora_dropout"] = number(config.dropout);
  known["use_rslora"] = config.use_rslora;
  known["use_dora"] = config.use_dora;
  known["fan_in_fan_out"] = config.fan_in_fan_out;
  known["ensure_weight_tying"] = config.ensure_weight_tying;
  known["target_modules"] = choice_json(config.targets);
  known["exclude_modules"] = choice_json(config.excluded);
  const bool saves = !config.modules_to_save.empty();
  known["modules_to_save"] = saves ? OrderedJson(config.modules_to_save) : OrderedJson(nullptr);
  known["layers_to_transform"] =
      config.layers.empty() ? OrderedJson(nullptr) : OrderedJson(config.layers);
  known["rank_pattern"] = values_json(config.rank_pattern);
  known["alpha_pattern"] = values_json(config.alpha_pattern);
  std::vector<std::string> keys;
  for (const auto& [key, value] : known.items()) keys.push_back(key);
  std::ranges::sort(keys);
  auto sorted = OrderedJson::object();
  for (const auto& key : keys) sorted[key] = known[key];
  return sorted.dump(2) + "\n";
}

}  // namespace skein::adapter
