// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does a text that a model makes end?

#include <cstdint>
#include <string>
#include <vector>

#include "skein/rollout/sampling/generation_config.h"
#include "skein/text/chat_template.h"
#include "skein/text/text_codec.h"
#include "skein/text/tokenizer.h"

namespace skein::cli {

struct TextEnds {
  std::vector<int64_t> tokens;     // not part of the text
  std::vector<std::string> texts;  // it ends before them

  bool holds(int64_t token) const;
};

// Of a text that goes on from a prompt, as in transformers: at the end tokens that the folder
// names, and where it names none at the tokenizer's.
TextEnds ends_of_text(const rollout::GenerationConfig& folder, const text::TextCodec& codec);
// Of an answer: there, and where the template ends a turn, for which the tokenizer may have no
// token.
TextEnds ends_of_turn(const rollout::GenerationConfig& folder, const text::ChatTemplate& chat,
                      const text::Tokenizer& tokenizer);

}  // namespace skein::cli
