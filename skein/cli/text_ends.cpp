// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/text_ends.h"

#include <algorithm>

#include "skein/text/turn_end.h"

namespace skein::cli {

bool TextEnds::holds(int64_t token) const { return std::ranges::count(tokens, token) > 0; }

TextEnds ends_of_text(const rollout::GenerationConfig& folder, const text::TextCodec& codec) {
  TextEnds ends{.tokens = folder.eos_token_ids, .texts = {}};
  const auto end = codec.end();
  // Of bytes the end is known, whatever the folder was copied from.
  if (end && (ends.tokens.empty() || codec.is_bytes())) ends.tokens.push_back(*end);
  return ends;
}

TextEnds ends_of_turn(const rollout::GenerationConfig& folder, const text::ChatTemplate& chat,
                      const text::Tokenizer& tokenizer) {
  TextEnds ends{.tokens = folder.eos_token_ids, .texts = {}};
  if (const auto id = tokenizer.eos_id()) ends.tokens.push_back(*id);
  const auto turn = text::find_turn_end(chat, tokenizer);
  if (turn.token) {
    ends.tokens.push_back(*turn.token);
  } else if (!turn.text.empty()) {
    ends.texts.push_back(turn.text);
  }
  return ends;
}

}  // namespace skein::cli
