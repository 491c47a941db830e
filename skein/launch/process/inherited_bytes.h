// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Bytes for children to read, through a descriptor that they inherit: more than fits into
// arguments, and not to be seen by others.

#include <string>

#include "skein/core/file.h"

namespace skein::launch {

// A sealed anonymous file, closed on exec: ChildCommand::inherited hands it over.
File share_bytes(const std::string& bytes);
// Reads all and closes the descriptor. Any number of children may do so. Throws IoError.
std::string take_bytes(int descriptor);

}  // namespace skein::launch
