// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// `~` and variables in the paths of a configuration, which no shell has seen.

#include <string>

#include "skein/config/syntax/node.h"

namespace skein::config {

// A leading ~ or ~USER is that home folder, $NAME and ${NAME} a variable of the environment. Throws
// UserError at `origin` when such a variable is not set.
std::string expanded_path(const std::string& text, const Origin& origin);

}  // namespace skein::config
