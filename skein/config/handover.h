// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How does a configuration reach the ranks of its run? The launcher has read, resolved and checked
// it once; ranks are handed every value with its origin and look into no file again.

#include <string>

#include "skein/config/load.h"

namespace skein::config {

// Bytes for a process of the same build. All keys, also those that belong to one start; not the
// notes, which were told.
std::string encode(const Resolved& resolved);
// Throws UserError when the bytes are none of encode()'s.
Resolved decode_resolved(const std::string& bytes);

}  // namespace skein::config
