// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// A tokenizer.json. One that is accepted gives ids of its vocabulary, the same with offsets, which
// lie in the text, and decodes them.
#include "skein/text/tokenizer.h"

#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {

void tokenizer(std::string_view bytes) try {
  const auto tokenizer = text::Tokenizer::parse(bytes, "tokenizer.json");
  constexpr std::string_view kText =
      " The cat's 42\n\xc3\xa9 e\xcc\x81 \xe4\xb8\xad\xe6\x96\x87\xff, the";
  const auto ids = tokenizer.encode(kText);
  const auto encoded = tokenizer.encode_with_offsets(kText);
  require(encoded.ids == ids, "offsets do not change the ids");
  require(encoded.spans.size() == ids.size(), "each token has its place");
  for (const uint32_t id : ids) {
    require(id < tokenizer.vocab_size(), "an id is one of the vocabulary");
  }
  for (const auto& span : encoded.spans) {
    require(span.begin <= span.end && span.end <= kText.size(), "a place lies in the text");
  }
  tokenizer.decode(ids);
} catch (const UserError&) {
}

}  // namespace skein::fuzz
