// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A tokenizer.json. One that is accepted gives every text back: it is byte-level.
#include "skein/text/tokenizer.h"

#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {

void tokenizer(std::string_view bytes) try {
  const auto tokenizer = text::Tokenizer::parse(bytes, "tokenizer.json");
  for (const uint32_t id : tokenizer.encode("The cat's 42\n\xc3\xa9")) {
    require(id < tokenizer.vocab_size(), "an id is one of the vocabulary");
  }
} catch (const UserError&) {
}

}  // namespace skein::fuzz
