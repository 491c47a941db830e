// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What ends a turn of the assistant, so that a generation can stop there?

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/text/chat_template.h"
#include "skein/text/tokenizer.h"

namespace skein::text {

struct TurnEnd {
  std::string text;               // as the template prints it behind an answer, without blanks
  std::optional<uint32_t> token;  // the one that ends the turn; none: the text has no token
  // What is printed behind that token, and all of it as it stands: a turn that has been trained on
  // goes on with it.
  std::vector<uint32_t> behind{};
  std::string printed{};
};

// What lies between the blanks around a text.
std::string_view without_blanks(std::string_view text);

// Nothing of a template that ends turns with blanks alone, or prints no plain question and answer.
TurnEnd find_turn_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// What the template prints behind an answer where the conversation goes on with these messages and
// the model is to answer again. Throws UserError where the template refuses them.
std::string printed_behind(const ChatTemplate& chat_template, std::span<const Message> messages);

// Whether the template ends turns with eos_token alone, and was told none.
bool lacks_end_token(const ChatTemplate& chat_template);

// What the template prints around turns in the shape of a token, as <|im_end|>, and the tokenizer
// would spell with several: each once. Empty where it knows what ends a turn, or nothing in that
// shape does.
std::vector<std::string> missing_turn_tokens(const ChatTemplate& chat_template,
                                             const Tokenizer& tokenizer);

}  // namespace skein::text
