// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which modules of a model does an adapter change, with which rank and scale? As PEFT decides it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "skein/adapter/adapter_config.h"
#include "skein/adapter/module_pattern.h"

namespace skein::adapter {

// A module that has a weight, by its path in the model: "model.layers.0.self_attn.q_proj".
struct Module {
  std::string name;
  bool is_linear = true;  // `all-linear` takes it, unless it is
  bool is_head = false;   // the output head
};

// Rank and scale of a module, whether it is adapted or not. Reusable: patterns are compiled once.
class Strengths {
 public:
  explicit Strengths(const AdapterConfig& config);

  int64_t rank_of(const std::string& module) const;
  // alpha / rank, or alpha / sqrt(rank).
  double scale_of(const std::string& module) const;

 private:
  const AdapterConfig* config_;  // outlives this
  std::vector<ModulePattern> rank_patterns_, alpha_patterns_;
};

// The indices of the modules that `config` targets, in their order. Throws UserError when there is
// none, with the names that are nearest to what was asked for.
std::vector<size_t> find_targets(const AdapterConfig& config, const std::vector<Module>& modules);

// The layer that a module's name says it lies in: "model.layers.7.mlp": 7.
std::optional<int64_t> layer_of(const std::string& module);

// Is it one of modules_to_save, or inside of one?
bool is_saved_whole(const AdapterConfig& config, const std::string& module);

}  // namespace skein::adapter
