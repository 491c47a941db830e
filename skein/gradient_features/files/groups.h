// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which group (subtask) does each validation sample belong to?

#include <string>
#include <vector>

#include "skein/core/file.h"

namespace skein::gradient_features {

// One name a line, in the order of the samples; blank lines do not count. Throws
// UserError where there is none, or no file.
std::vector<std::string> groups_of_file(const fs::path& path);

// The value of `key` in each row of a .jsonl file: a string, a number or a boolean. Throws
// UserError naming the line that has none.
std::vector<std::string> groups_by_key(const fs::path& rows, const std::string& key);

}  // namespace skein::gradient_features
