// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The words after a subcommand: CONFIG.yaml, key=value, --key value, --key=value, --flag.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/syntax/node.h"

namespace skein::config {

struct Arguments {
  std::optional<std::string> config;  // also as --config FILE
  std::vector<Setting> overrides;     // in the order given, keys with underscores
};

// Launch flags are taken out before. Throws UserError for a second CONFIG or a word that is
// neither; keys are not judged here.
Arguments parse_arguments(std::span<const std::string> words);

}  // namespace skein::config
