// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do the processes of one run share that nobody else knows?
//
// The launcher makes 32 random bytes; they reach its ranks through an inherited descriptor, never
// through arguments or the environment, which other users of the machine can read.

#include <array>

#include "skein/core/file.h"

namespace skein::launch {

using Secret = std::array<unsigned char, 32>;

Secret make_secret();

// A sealed anonymous file with the secret in it, closed on exec: a child that is to inherit it
// clears that flag after the fork.
File share_secret(const Secret& secret);

// Reads the secret and closes the descriptor. Throws UserError when it holds anything else.
Secret take_secret(int descriptor);

}  // namespace skein::launch
