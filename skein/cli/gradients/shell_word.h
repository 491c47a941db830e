// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <string>
#include <string_view>

namespace skein::cli {

// A word of a line that a message asks somebody to type: in quotes where a shell would otherwise
// make something else of it.
std::string shell_word(std::string_view text);

}  // namespace skein::cli
