// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The configuration that a run has written down (to_yaml()): is it one, and what is different now?

#include <string>
#include <string_view>
#include <vector>

#include "skein/config/load.h"

namespace skein::config {

// Is the text of the form that to_yaml() writes, in this or another version? A hand-written file is
// not: it has comments, sections, or another order.
bool is_saved_config(std::string_view yaml);

// "KEY: OLD → NEW" for every key that is in both with another value.
std::vector<std::string> changed_keys(std::string_view saved, const Resolved& now);

}  // namespace skein::config
