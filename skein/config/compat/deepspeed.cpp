// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/config/compat/deepspeed_keys.h"
#include "skein/config/syntax/paths.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/values.h"
#include "skein/config/syntax/yaml_reader.h"
#include "skein/core/file.h"

namespace skein::config {
namespace {

void add_leaves(const Node& map, const std::string& prefix, std::vector<Setting>& leaves) {
  for (const auto& [key, origin, value] : map.members) {
    const auto path = prefix.empty() ? key : prefix + "." + key;
    if (value.kind == Node::Kind::kMap) {
      add_leaves(value, path, leaves);
    } else {
      leaves.push_back({path, value, origin});
    }
  }
}

fs::path find_file(const Node& name) {
  fs::path path = expanded_path(name.text, name.origin);
  std::error_code ignored;  // no name, however long, is more than a file that does not exist
  if (fs::is_regular_file(path, ignored)) return path;
  auto beside = fs::path(name.origin.file).parent_path() / path;
  if (fs::is_regular_file(beside, ignored)) return beside;
  refuse(name.origin, fmt::format("DeepSpeed file '{}' does not exist, neither in the working "
                                  "folder nor as '{}'",
                                  path.string(), beside.string()));
}

Node read_object(const Setting& named) {
  const Node* value = &named.value;
  if (const auto* path = value->find("config_path")) {
    if (value->members.size() > 1) {
      refuse(named.origin,
             "'deepspeed' has 'config_path' and other keys: give the file or the "
             "object, not both");
    }
    value = path;
  }
  if (value->kind == Node::Kind::kMap) return *value;
  if (value->kind != Node::Kind::kScalar) {
    refuse(value->origin, "'deepspeed' takes a JSON file name or an object");
  }
  const auto file = find_file(*value);
  return read_json(read_file(file, 16 << 20), file.string());
}

class Reader {
 public:
  void read(const Setting& leaf) {
    const auto* rule = find_deepspeed_rule(leaf.key);
    if (!rule) {
      refuse(leaf.origin, fmt::format("unknown DeepSpeed key '{}'{}", leaf.key,
                                      did_you_mean(leaf.key, deepspeed_key_names())));
    }
    if (lower(leaf.value.text) == "auto")
      return report(leaf, "auto", "the YAML or the default decides");
    switch (rule->status) {
      case KeyRule::Status::kHonoured:
        return honour(leaf, *rule);
      case KeyRule::Status::kEmulated:
        return report(leaf, parse_bool(leaf.value.text) == false ? "no effect" : "emulated",
                      std::string(rule->detail));
      case KeyRule::Status::kNoEffect:
        return report(leaf, "no effect", std::string(rule->detail));
      case KeyRule::Status::kLaunchFlag:
      case KeyRule::Status::kRefused:
        return refuse_unless_off(leaf, *rule);
    }
  }

  DeepSpeed result;

 private:
  void report(const Setting& leaf, const std::string& status, const std::string& detail) {
    result.notes.push_back(fmt::format("{}: DeepSpeed {} = {}: {} ({})", leaf.origin.place(),
                                       leaf.key, leaf.value.shown(), status, detail));
  }

  void set(const Setting& leaf, const std::string& key, const Node& value) {
    auto origin = leaf.origin;
    origin.spelling = leaf.key;
    result.settings.push_back({key, value, origin});
    report(leaf, "honoured", fmt::format("{}: {}", key, value.shown()));
  }

  void honour(const Setting& leaf, const KeyRule& rule) {
    if (leaf.key == "zero_optimization.stage") return set_stage(leaf);
    if (leaf.key == "optimizer.params.betas") return set_betas(leaf);
    if (leaf.key == "optimizer.type") return check_optimizer(leaf);
    const std::string key(rule.detail);
    if (key == "dtype") return set(leaf, key, word(leaf, as_bool(leaf) ? "bfloat16" : "float32"));
    if (key == "grad_accum_fp32") return set_accumulation_type(leaf);
    if (is_null(leaf.value)) return report(leaf, "no effect", "null");
    set(leaf, key, leaf.value);
  }

  static Node word(const Setting& leaf, const std::string& text) {
    return scalar(text, leaf.value.origin);
  }

  static bool as_bool(const Setting& leaf) {
    const auto value = parse_bool(leaf.value.text);
    if (!value) refuse(leaf.value.origin, fmt::format("'{}' must be true or false", leaf.key));
    return *value;
  }

  void set_stage(const Setting& leaf) {
    const auto stage = parse_integer(leaf.value.text);
    if (!stage || *stage < 0 || *stage > 3) {
      refuse(leaf.value.origin,
             fmt::format("'{}' must be 0, 1, 2 or 3, not '{}'", leaf.key, leaf.value.shown()));
    }
    set(leaf, "distributed_strategy",
        word(leaf, *stage == 0 ? "ddp" : fmt::format("zero{}", *stage)));
  }

  void set_betas(const Setting& leaf) {
    if (leaf.value.items.size() != 2) {
      refuse(leaf.value.origin, fmt::format("'{}' must be a list of two numbers", leaf.key));
    }
    for (const int i : {0, 1}) {
      const auto& beta = leaf.value.items[static_cast<size_t>(i)];
      if (lower(beta.text) == "auto") continue;
      set(leaf, fmt::format("adam_beta{}", i + 1), beta);
    }
  }

  // DeepSpeed's "Adam" is decoupled too, unless adam_w_mode is false.
  void check_optimizer(const Setting& leaf) {
    const auto type = lower(leaf.value.shown());
    if (type != "adamw" && type != "adam") {
      refuse(leaf.value.origin,
             fmt::format("DeepSpeed optimizer '{}' is known, but this version does not support it; "
                         "it has AdamW",
                         leaf.value.shown()));
    }
    report(leaf, "honoured", "AdamW with decoupled decay");
  }

  void set_accumulation_type(const Setting& leaf) {
    const auto type = lower(leaf.value.shown());
    if (type == "fp32") return set(leaf, "grad_accum_fp32", word(leaf, "true"));
    report(leaf, "emulated", "accumulation is always in fp32");
  }

  void refuse_unless_off(const Setting& leaf, const KeyRule& rule) {
    if (rule.is_off(leaf.value)) return report(leaf, "no effect", "off");
    if (is_null(leaf.value)) return report(leaf, "no effect", "null");
    refuse(leaf.origin,
           fmt::format("DeepSpeed key '{}' is known, but this version does not support "
                       "it: {}",
                       leaf.key, rule.detail));
  }
};

}  // namespace

DeepSpeed read_deepspeed(const Setting& named) {
  std::vector<Setting> leaves;
  add_leaves(read_object(named), "", leaves);
  Reader reader;
  for (const auto& leaf : leaves) reader.read(leaf);
  return std::move(reader.result);
}

}  // namespace skein::config
