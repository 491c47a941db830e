// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/answer.h"

#include <vector>

namespace skein::rewards {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";
constexpr std::string_view kBox = "\\boxed{", kOpen = "<answer>", kClose = "</answer>";

std::optional<std::string_view> after_hashes(std::string_view text) {
  const auto at = text.rfind("####");
  if (at == std::string_view::npos) return std::nullopt;
  const auto rest = text.substr(at + 4);
  return trimmed(rest.substr(0, rest.find('\n')));
}

std::optional<std::string_view> in_tag(std::string_view text) {
  const auto close = text.rfind(kClose);
  if (close == std::string_view::npos) return std::nullopt;
  const auto open = text.substr(0, close).rfind(kOpen);
  if (open == std::string_view::npos) return std::nullopt;
  const auto from = open + kOpen.size();
  return trimmed(text.substr(from, close - from));
}

// The box that is closed last: of two in a row the second, of one in another the outer one.
std::optional<std::string_view> in_box(std::string_view text) {
  struct Brace {
    size_t content;
    bool is_box;
  };
  std::vector<Brace> open;
  std::optional<std::string_view> found;
  for (size_t i = text.find(kBox); i < text.size(); ++i) {
    if (text.substr(i).starts_with(kBox)) {
      i += kBox.size() - 1;
      open.push_back({i + 1, true});
    } else if (text[i] == '\\') {
      ++i;  // an escaped brace is none
    } else if (text[i] == '{') {
      open.push_back({i + 1, false});
    } else if (text[i] == '}' && !open.empty()) {
      const auto [content, is_box] = open.back();
      open.pop_back();
      if (is_box) found = trimmed(text.substr(content, i - content));
    }
  }
  return found;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::optional<std::string_view> find_answer(std::string_view text, AnswerForm form) {
  switch (form) {
    case AnswerForm::kHashes:
      return after_hashes(text);
    case AnswerForm::kBoxed:
      return in_box(text);
    case AnswerForm::kTag:
      return in_tag(text);
  }
  return std::nullopt;
}

std::optional<std::string_view> find_answer(std::string_view text) {
  auto answer = in_tag(text);
  if (const auto box = in_box(answer.value_or(text))) return box;
  return answer ? answer : after_hashes(text);
}

std::string_view after_thinking(std::string_view text) {
  constexpr std::string_view end = "</think>";
  const auto at = text.rfind(end);
  return at == std::string_view::npos ? text : text.substr(at + end.size());
}

}  // namespace skein::rewards
