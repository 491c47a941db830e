// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/turn_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "skein/core/error.h"

namespace skein::text {
namespace {

constexpr const char* kAnswer = "skein-answer";  // that no template has a word like

// A question and an answer; empty: the template does not print them.
std::string rendered(const ChatTemplate& chat_template, const std::string& variables = "") try {
  const Conversation example{
      .messages = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = kAnswer}}};
  return chat_template.render(example, {.extra_json = variables, .num_messages = {}}).text;
} catch (const jinja::TemplateError&) {
  return {};
}

std::string behind_answer(const std::string& text) {
  const auto place = text.rfind(kAnswer);
  if (place == std::string::npos) return {};
  return text.substr(place + std::string_view(kAnswer).size());
}

// The parts of a text that look like tokens: <|im_end|>, <end_of_turn>, </s>.
std::vector<std::string> token_shapes(std::string_view text) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_|/-";
  std::vector<std::string> shapes;
  for (size_t begin = text.find('<'); begin != std::string_view::npos;
       begin = text.find('<', begin + 1)) {
    const auto end = text.find_first_not_of(kLetters, begin + 1);
    if (end == std::string_view::npos || text[end] != '>' || end == begin + 1) continue;
    shapes.emplace_back(text.substr(begin, end + 1 - begin));
  }
  return shapes;
}

}  // namespace

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

TurnEnd find_turn_end(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  TurnEnd end{.text = {}, .token = {}, .printed = behind_answer(rendered(chat_template))};
  end.text = without_blanks(end.printed);
  const auto ids = tokenizer.encode(end.text, {.add_special_tokens = false});
  const auto special =
      std::ranges::find_if(ids, [&](uint32_t id) { return tokenizer.is_special(id); });
  if (special != ids.end()) {
    end.token = *special;
  } else if (ids.size() == 1) {  // added tokens need not be special
    end.token = ids[0];
  }
  if (!end.token) return end;
  const auto all = tokenizer.encode(end.printed, {.add_special_tokens = false});
  const auto place = std::ranges::find(all, *end.token);
  if (place != all.end()) end.behind.assign(place + 1, all.end());
  return end;
}

std::string printed_behind(const ChatTemplate& chat_template, std::span<const Message> messages) {
  Conversation example{
      .messages = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = kAnswer}}};
  example.messages.insert(example.messages.end(), messages.begin(), messages.end());
  try {
    const auto text = chat_template.render(example, {.add_generation_prompt = true}).text;
    const auto place = text.find(kAnswer);
    if (place != std::string::npos) return text.substr(place + std::string_view(kAnswer).size());
  } catch (const jinja::TemplateError& error) {
    throw UserError(fmt::format("{} refuses what an answer was replied to with: {}",
                                chat_template.name(), error.what()));
  }
  throw UserError(fmt::format("{} does not print answers as they are", chat_template.name()));
}

bool lacks_end_token(const ChatTemplate& chat_template) {
  constexpr std::string_view kProbe = "skein-end";
  return without_blanks(behind_answer(rendered(chat_template))).empty() &&
         without_blanks(behind_answer(rendered(chat_template, R"({"eos_token": "skein-end"})"))) ==
             kProbe;
}

std::vector<std::string> missing_turn_tokens(const ChatTemplate& chat_template,
                                             const Tokenizer& tokenizer) {
  const auto end = find_turn_end(chat_template, tokenizer);
  const auto ends = token_shapes(end.text);
  if (end.token || ends.empty()) return {};
  std::vector<std::string> missing;
  for (const auto& shape : token_shapes(rendered(chat_template))) {
    const bool is_token = tokenizer.encode(shape, {.add_special_tokens = false}).size() == 1;
    if (!is_token && std::ranges::count(missing, shape) == 0) missing.push_back(shape);
  }
  return missing;
}

}  // namespace skein::text
