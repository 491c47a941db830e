// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/turn_end.h"

namespace skein::text {
namespace {

constexpr const char* kAnswer = "skein-answer";  // that no template has a word like

std::string behind_answer(const ChatTemplate& chat_template) try {
  const Conversation example{
      .messages = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = kAnswer}}};
  const auto text = chat_template.render(example).text;
  const auto place = text.rfind(kAnswer);
  if (place == std::string::npos) return {};
  return std::string(
      without_blanks(std::string_view(text).substr(place + std::string_view(kAnswer).size())));
} catch (const jinja::TemplateError&) {
  return {};
}

}  // namespace

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

TurnEnd find_turn_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  TurnEnd end{.text = behind_answer(chat_template), .token = {}};
  const auto ids = tokenizer.encode(end.text, {.add_special_tokens = false});
  for (const uint32_t id : ids) {
    if (tokenizer.is_special(id)) {
      end.token = id;
      return end;
    }
  }
  // Added tokens need not be special.
  if (ids.size() == 1) end.token = ids[0];
  return end;
}

}  // namespace skein::text
