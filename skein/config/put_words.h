// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Values that the program itself puts over those that were given.

#include <string>

#include "skein/config/load.h"

namespace skein::config {

// `words` are "key=value key=value", canonical keys and no spaces in values. `why` is told as the
// values' origin, beside the place where the key was given. Throws UserError for a word that is
// none, an unknown key or a value that does not fit it.
void put_words(Resolved& resolved, const std::string& words, const std::string& why);

}  // namespace skein::config
