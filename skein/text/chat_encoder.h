// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which tokens does a conversation consist of, and which of them are trained on?
//
// A template that marks the assistant's text ({% generation %}) says it. Of any other, the text of
// the messages up to an assistant's, with the prompt for a generation, must begin the text of the
// messages up to and with it, and that the whole text: what is between is trained on. The template
// writes all special tokens; a second BOS at the beginning is left out.

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "skein/text/chat_template.h"
#include "skein/text/conversation.h"
#include "skein/text/tokenizer.h"

namespace skein::text {

class ChatEncoder {
 public:
  // `tokenizer` must outlive this. Thread-safe.
  ChatEncoder(const Tokenizer& tokenizer, ChatTemplate chat_template, TrainedTurns turns);

  // A message that says itself whether it is trained on wins over `turns`. Throws UserError that
  // names the template and the message: one that the template refuses, or whose text cannot be told
  // from the others'.
  MaskedTokens encode(const Conversation& conversation) const;

  // With what the tokenizer puts around a text, and the end token. The completion and the end are
  // trained on, with TrainedTurns::kAll the prompt too.
  MaskedTokens encode_completion(std::string_view prompt, std::string_view completion) const;

  // What stands before an answer, none of it trained on: the messages and the template's prompt for
  // a generation; or a text with what the tokenizer puts before it.
  MaskedTokens encode_prompt(const Conversation& conversation) const;
  MaskedTokens encode_prompt(std::string_view text) const;

 private:
  struct Trained;
  Trained find_trained(const Conversation& conversation, const jinja::Rendered& rendered) const;
  uint32_t count_empty(const Conversation& conversation, std::string_view text,
                       const Trained& trained) const;
  MaskedTokens masked(const Encoded& encoded, const std::vector<jinja::Span>& spans) const;

  const Tokenizer& tokenizer_;
  ChatTemplate template_;
  TrainedTurns turns_;
  std::set<std::string, std::less<>> empty_turns_;  // as the template prints them
};

}  // namespace skein::text
