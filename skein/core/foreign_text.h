// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does text that a stranger wrote stand in a message?

#include <string>
#include <string_view>

namespace skein {

// On one line, control characters as \n and \x1b, and cut after about 500 bytes: a file can neither
// fill a screen nor write lines that look like ours.
std::string shown(std::string_view foreign);

}  // namespace skein
