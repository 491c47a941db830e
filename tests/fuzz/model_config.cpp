// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A config.json. What is accepted is written in such a way that it is read again.
#include "skein/core/error.h"
#include "skein/plan/hf_config.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {

void model_config(std::string_view bytes) try {
  const auto config = plan::parse_hf_config(bytes, "config.json");
  const auto again = plan::parse_hf_config(plan::hf_config_json(config, "float32"), "again");
  require(again.family == config.family, "the family is the same");
  require(again.dtype == "float32", "the new dtype is there");
} catch (const UserError&) {
}

}  // namespace skein::fuzz
