// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which `--word` of a command that takes configuration keys and launch flags is neither?

#include <span>
#include <string>
#include <vector>

namespace skein::cli {

// Throws UserError, with suggestions, for the first. Flags that were read are gone from
// `arguments`; `own` names those of the command itself, without dashes, to be suggested too.
void check_flags(std::span<const std::string> arguments, const std::vector<std::string>& own = {});

}  // namespace skein::cli
