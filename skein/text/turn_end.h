// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What ends a turn of the assistant, so that a generation can stop there?

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "skein/text/chat_template.h"
#include "skein/text/tokenizer.h"

namespace skein::text {

struct TurnEnd {
  std::string text;               // as the template prints it behind an answer, without blanks
  std::optional<uint32_t> token;  // the one that ends the turn; none: the text has no token
};

// What lies between the blanks around a text.
std::string_view without_blanks(std::string_view text);

// Nothing of a template that ends turns with blanks alone, or prints no plain question and answer.
TurnEnd find_turn_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace skein::text
