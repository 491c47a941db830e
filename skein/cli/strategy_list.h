// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// `--strategies zero2,zero3`, of the commands that compare strategies.

#include <string>
#include <vector>

#include "skein/config/run_config.h"

namespace skein::cli {

// Each once, in the order of the words; none for an empty text. Throws UserError.
std::vector<config::Strategy> read_strategies(const std::string& text);

}  // namespace skein::cli
