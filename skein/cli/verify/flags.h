// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The words of `skein verify-strategy`, which its launcher and its ranks read alike.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::cli {

struct VerifyFlags {
  int64_t steps = 5;
  std::optional<double> tolerance;
  std::vector<config::Strategy> strategies;  // empty: all
  bool json = false;
  std::vector<std::string> rest;  // the configuration: a file, keys
};

// Without launch flags. Throws UserError.
VerifyFlags parse_verify_flags(std::span<const std::string> arguments);

}  // namespace skein::cli
