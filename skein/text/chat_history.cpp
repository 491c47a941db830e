// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/chat_history.h"

#include <fmt/format.h>

#include <utility>

#include "skein/core/error.h"

namespace skein::text {

ChatHistory::ChatHistory(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                         ChatHistoryOptions options)
    : tokenizer_(tokenizer), template_(chat_template), options_(std::move(options)) {
  reset();
}

ChatPrompt ChatHistory::ask(const std::string& question, size_t max_tokens) {
  auto longer = conversation_;
  auto& messages = longer.messages;
  messages.push_back({.role = "user", .content = question, .trained = {}, .extra_json = {}});
  const size_t first = options_.system.empty() ? 0 : 1;
  ChatPrompt prompt{.ids = encode(longer), .num_dropped = 0};
  while (prompt.ids.size() > max_tokens) {
    if (messages.size() == first + 1) {
      throw UserError(fmt::format("the question{} has {} tokens, and there is room for {}",
                                  options_.system.empty() ? "" : " with the system message",
                                  prompt.ids.size(), max_tokens));
    }
    const auto oldest = messages.begin() + static_cast<ptrdiff_t>(first);
    messages.erase(oldest, oldest + 2);
    ++prompt.num_dropped;
    prompt.ids = encode(longer);
  }
  conversation_ = std::move(longer);
  return prompt;
}

void ChatHistory::answer(const std::string& text) {
  conversation_.messages.push_back(
      {.role = "assistant", .content = text, .trained = {}, .extra_json = {}});
}

void ChatHistory::reset() {
  conversation_.messages.clear();
  if (options_.system.empty()) return;
  conversation_.messages.push_back(
      {.role = "system", .content = options_.system, .trained = {}, .extra_json = {}});
}

std::vector<uint32_t> ChatHistory::encode(const Conversation& conversation) const {
  const auto text = template_
                        .render(conversation, {.add_generation_prompt = true,
                                               .extra_json = options_.variables_json,
                                               .num_messages = {}})
                        .text;
  return tokenizer_.encode(text, {.add_special_tokens = false});
}

}  // namespace skein::text
