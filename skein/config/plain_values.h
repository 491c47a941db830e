// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A configuration as reporters take it: flat names, plain values.

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::config {

using PlainValue = std::variant<bool, double, std::string>;

// Every key of a run's configuration, but those that belong to one start and numbers that are
// absent.
std::vector<std::pair<std::string, PlainValue>> plain_values(const RunConfig& config);

}  // namespace skein::config
