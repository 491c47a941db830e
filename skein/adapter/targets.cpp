// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/targets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"

namespace skein::adapter {
namespace {

using Kind = ModuleChoice::Kind;
using Reach = ModulePattern::Reach;

bool is_or_ends_in(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

// Of a choice, compiled once.
class Chooser {
 public:
  explicit Chooser(const ModuleChoice& choice) : choice_(choice) {
    if (choice.kind == Kind::kPattern) pattern_.emplace(choice.pattern, Reach::kWhole);
  }

  bool takes(const Module& module) const {
    switch (choice_.kind) {
      case Kind::kNone:
        return false;
      case Kind::kNames:
        return std::ranges::any_of(choice_.names, [&](const std::string& name) {
          return is_or_ends_in(module.name, name);
        });
      case Kind::kPattern:
        return pattern_->matches(module.name);
      case Kind::kAllLinear:
        return module.is_linear && !module.is_head;
    }
    return false;
  }

 private:
  const ModuleChoice& choice_;
  std::optional<ModulePattern> pattern_;
};

// PEFT looks at layers only where names are listed, and not at names that are given whole.
bool is_in_layers(const AdapterConfig& config, const std::string& module) {
  if (config.layers.empty() || config.targets.kind != Kind::kNames) return true;
  if (std::ranges::find(config.targets.names, module) != config.targets.names.end()) return true;
  const auto layer = layer_of(module);
  return layer && std::ranges::find(config.layers, *layer) != config.layers.end();
}

[[noreturn]] void refuse_targets(const AdapterConfig& config, const std::vector<Module>& modules) {
  std::set<std::string> last_words;
  std::vector<std::string> names;
  for (const auto& module : modules) {
    last_words.insert(module.name.substr(module.name.rfind('.') + 1));
    names.push_back(module.name);
  }
  names.insert(names.begin(), last_words.begin(), last_words.end());
  std::string asked, hint;
  if (config.targets.kind == Kind::kNames) {
    asked = fmt::format("target_modules [{}]", fmt::join(config.targets.names, ", "));
    for (const auto& name : config.targets.names) {
      if (hint.empty()) hint = config::did_you_mean(name, names);
    }
  } else if (config.targets.kind == Kind::kPattern) {
    asked = fmt::format("the pattern '{}' of target_modules", config.targets.pattern);
  } else if (config.targets.kind == Kind::kAllLinear) {
    asked = "target_modules 'all-linear'";
  } else {
    throw UserError("the adapter names no target_modules");
  }
  constexpr size_t kShown = 20;
  std::vector<std::string> shown(last_words.begin(), last_words.end());
  const bool more = shown.size() > kShown;
  if (more) shown.resize(kShown);
  const auto limits =
      config.layers.empty() && config.excluded.kind == Kind::kNone && config.modules_to_save.empty()
          ? ""
          : " (layers_to_transform, exclude_modules and modules_to_save narrow it)";
  throw UserError(fmt::format("{} matches no layer of the model{}{}; it has {}{}", asked, limits,
                              hint, fmt::join(shown, ", "), more ? ", …" : ""));
}

template <typename Value>
std::vector<ModulePattern> compile(const ModuleValues<Value>& values) {
  std::vector<ModulePattern> patterns;
  for (const auto& [pattern, value] : values) patterns.emplace_back(pattern, Reach::kEnding);
  return patterns;
}

template <typename Value>
Value first_match(const std::vector<ModulePattern>& patterns, const ModuleValues<Value>& values,
                  const std::string& module, Value otherwise) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (patterns[i].matches(module)) return values[i].second;
  }
  return otherwise;
}

}  // namespace

Strengths::Strengths(const AdapterConfig& config)
    : config_(&config),
      rank_patterns_(compile(config.rank_pattern)),
      alpha_patterns_(compile(config.alpha_pattern)) {}

int64_t Strengths::rank_of(const std::string& module) const {
  return first_match(rank_patterns_, config_->rank_pattern, module, config_->rank);
}

double Strengths::scale_of(const std::string& module) const {
  const double alpha = first_match(alpha_patterns_, config_->alpha_pattern, module, config_->alpha);
  const auto rank = static_cast<double>(rank_of(module));
  return alpha / (config_->use_rslora ? std::sqrt(rank) : rank);
}

// As PEFT: the first segment that is a number, counted from the third.
std::optional<int64_t> layer_of(const std::string& module) {
  size_t begin = 0;
  for (int segment = 0; begin != std::string::npos; ++segment) {
    const auto end = module.find('.', begin);
    const auto word = module.substr(begin, end - begin);
    const bool is_number =
        !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    // Something must follow it, and two segments come before.
    if (segment >= 2 && is_number && word.size() < 10 && end != std::string::npos) {
      return std::stoll(word);
    }
    begin = end == std::string::npos ? end : end + 1;
  }
  return std::nullopt;
}

bool is_saved_whole(const AdapterConfig& config, const std::string& module) {
  return std::ranges::any_of(config.modules_to_save, [&](const std::string& name) {
    // As PEFT: by ending, so that `norm` is every layernorm too; what lies inside is part of it.
    return fmt::format("{}.", module).find(fmt::format("{}.", name)) != std::string::npos;
  });
}

std::vector<size_t> find_targets(const AdapterConfig& config, const std::vector<Module>& modules) {
  const Chooser targets(config.targets), excluded(config.excluded);
  std::vector<size_t> found;
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto& module = modules[i];
    if (targets.takes(module) && is_in_layers(config, module.name) && !excluded.takes(module) &&
        !is_saved_whole(config, module.name)) {
      found.push_back(i);
    }
  }
  if (found.empty()) refuse_targets(config, modules);
  return found;
}

}  // namespace skein::adapter
