// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What do the processes of one run share that nobody else knows?
//
// The launcher makes 32 random bytes; they reach its ranks through an inherited descriptor, never
// through arguments or the environment, which other users of the machine can read. Nodes that were
// started by hand share a file.

#include <array>
#include <string_view>

#include "skein/core/file.h"

namespace skein::control {

using Secret = std::array<unsigned char, 32>;

Secret make_secret();

// What the processes of one run prove themselves with: the secret that its machines share, which
// may be a file of many runs, and the token of this one. A process of another start has another.
Secret secret_of_run(const Secret& shared, std::string_view token);

// A sealed anonymous file with the secret in it, closed on exec: a child that is to inherit it
// clears that flag after the fork.
File share_secret(const Secret& secret);

// Of a file that holds at least 32 bytes (the end's white space left out), like the output of
// `openssl rand -hex 32`, and that nobody else can read. Throws UserError when it is otherwise.
Secret read_secret_file(const fs::path& path);

// Puts such a file with a new secret in the place of `path`.
void write_secret_file(const fs::path& path);

// Reads the secret and closes the descriptor. Throws UserError when it holds anything else.
Secret take_secret(int descriptor);

}  // namespace skein::control
