// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// skein tokenizer train | encode | decode: makes a byte-level tokenizer, and tries one.

#include <span>
#include <string>

namespace skein::cli {

// `arguments` begins with train, encode or decode. Returns the exit code; errors propagate.
int run_tokenizer_command(std::span<const std::string> arguments);

}  // namespace skein::cli
