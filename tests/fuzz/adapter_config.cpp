// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// An adapter_config.json. What is accepted is written in such a way that it is read again, and its
// patterns end on every name.
#include "skein/adapter/adapter_config.h"

#include "skein/adapter/targets.h"
#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {

void adapter_config(std::string_view bytes) try {
  const auto config = adapter::parse_adapter_config(bytes, "adapter_config.json");
  const auto text = adapter::adapter_config_json(config);
  const auto again = adapter::parse_adapter_config(text, "again");
  require(adapter::adapter_config_json(again) == text, "what is written is read again");
  require(again.rank_pattern == config.rank_pattern, "patterns keep their order");
  const std::vector<adapter::Module> modules = {
      {"model.layers.0.self_attn.q_proj"}, {"transformer.h.11.attn.c_attn"}, {"lm_head"}};
  const adapter::Strengths strengths(config);
  for (const auto& module : modules) strengths.scale_of(module.name);
  require(adapter::find_targets(config, modules).size() <= modules.size(), "each module once");
} catch (const UserError&) {
}

}  // namespace skein::fuzz
