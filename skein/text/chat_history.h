// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a model read before it answers? The conversation so far, as much of it as fits.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "skein/text/chat_template.h"
#include "skein/text/conversation.h"
#include "skein/text/tokenizer.h"

namespace skein::text {

struct ChatHistoryOptions {
  std::string system;          // empty: no system message
  std::string variables_json;  // of the template; empty: none
};

struct ChatPrompt {
  std::vector<uint32_t> ids;
  size_t num_dropped = 0;  // turns that this question pushed out, each a question and its answer
};

class ChatHistory {
 public:
  // Both must outlive this.
  ChatHistory(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
              ChatHistoryOptions options = {});

  // At most `max_tokens`: the oldest turns are dropped. Throws UserError when the question is too
  // long alone, and what the template throws; the conversation is then what it was. Every question
  // has its answer() before the next.
  ChatPrompt ask(const std::string& question, size_t max_tokens);
  void answer(const std::string& text);
  // Forgets all but the system message.
  void reset();

 private:
  std::vector<uint32_t> encode(const Conversation& conversation) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  ChatHistoryOptions options_;
  Conversation conversation_;
};

}  // namespace skein::text
