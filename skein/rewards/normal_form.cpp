// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Two ways to write one answer: what is dropped, and what is read as a number.
#include <algorithm>
#include <array>
#include <utility>

#include "skein/rewards/answer.h"

namespace skein::rewards {
namespace {

constexpr size_t kMaxBytes = 4096;  // what follows may look at a byte more than once

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool take_end(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  size_t done = 0;
  while (true) {
    const auto at = text.find(from, done);
    result.append(text, done, std::min(at, text.size()) - done);
    if (at == std::string::npos) break;
    const auto end = at + from.size();
    // \left is no part of \leftarrow.
    const bool goes_on = is_letter(from.back()) && end < text.size() && is_letter(text[end]);
    result += goes_on ? from : to;
    done = end;
  }
  text = std::move(result);
}

std::string with_single_spaces(std::string_view text) {
  std::string result;
  for (const char c : trimmed(text)) {
    const bool space = trimmed({&c, 1}).empty();
    if (!space) {
      result += c;
    } else if (result.back() != ' ') {
      result += ' ';
    }
  }
  return result;
}

// Where the group whose brace stands before `from` is closed; npos: nowhere.
size_t end_of_group(std::string_view text, size_t from) {
  int depth = 1;
  for (size_t i = from; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

// The content of a group that is the whole: of \text{five}.
bool take_group(std::string_view& text, std::string_view command) {
  if (!text.starts_with(command) || end_of_group(text, command.size()) != text.size() - 1) {
    return false;
  }
  text.remove_prefix(command.size());
  text.remove_suffix(1);
  return true;
}

bool take_pair(std::string_view& text, std::string_view open, std::string_view close) {
  if (text.size() < open.size() + close.size() || !text.starts_with(open) ||
      !text.ends_with(close)) {
    return false;
  }
  text.remove_prefix(open.size());
  text.remove_suffix(close.size());
  return true;
}

// One layer of what may stand around an answer. False when there is none.
bool undress(std::string_view& text) {
  const auto before = text.size();
  text = trimmed(text);
  if (text.size() > 1) take_end(text, ".");
  const bool had_layer = take_pair(text, "$", "$") || take_pair(text, "\\(", "\\)") ||
                         take_pair(text, "\\[", "\\]") || take_pair(text, "**", "**") ||
                         take_group(text, "\\text{") || take_group(text, "\\textbf{") ||
                         take_group(text, "\\mathrm{") || take_group(text, "\\mathbf{") ||
                         take_group(text, "\\boxed{");
  // The letter of a choice.
  if (text.size() == 3 && is_letter(text[1])) take_pair(text, "(", ")");
  return had_layer || text.size() < before;
}

// "5\text{ cm}" is 5.
void drop_unit(std::string& text) {
  const auto at = text.rfind("\\text{");
  if (at != std::string::npos && at > 0 && is_digit(text[at - 1]) && text.back() == '}') {
    text.resize(at);
  }
}

std::string plain_latex(std::string text) {
  using Change = std::pair<std::string_view, std::string_view>;
  static constexpr auto kChanges = std::to_array<Change>({
      {"\\left", ""},
      {"\\right", ""},
      {"\\displaystyle", ""},
      {"\\!", ""},
      {"\\,", ""},
      {"\\;", ""},
      {"\\:", ""},
      {"\\ ", ""},
      {"^\\circ", ""},
      {"^{\\circ}", ""},
      {"\\dfrac", "\\frac"},
      {"\\tfrac", "\\frac"},
      {"\\cfrac", "\\frac"},
      {"\\cdot", "\\times"},
      {"\\%", "%"},
      {"\\$", "$"},
      {"{,}", ","},
  });
  for (const auto& [from, to] : kChanges) replace_all(text, from, to);
  drop_unit(text);
  std::erase(text, ' ');
  return text;
}

bool take_sign(std::string_view& text) {
  if (take(text, "-") || take(text, "\u2212")) return true;
  take(text, "+");
  return false;
}

void take_currency(std::string_view& text) {
  for (const std::string_view sign : {"$", "€", "£", "¥"}) {
    if (take(text, sign)) text = trimmed(text);
  }
}

std::optional<Rational> take_simple(std::string_view& text) {
  const bool negative = take_sign(text);
  const auto value = take_decimal(text);
  return value && negative ? subtract({}, *value) : value;
}

// "{-3}", or the one digit of \frac12.
std::optional<Rational> take_argument(std::string_view& text) {
  if (take(text, "{")) {
    const auto value = take_simple(text);
    return take(text, "}") ? value : std::nullopt;
  }
  auto digit = text.substr(0, 1);
  const auto value = take_decimal(digit);
  if (value) text.remove_prefix(1);
  return value;
}

// \frac{1}{2}, 1/2, 1.5, 1.5\times10^{3}
std::optional<Rational> take_unsigned(std::string_view& text) {
  if (take(text, "\\frac")) {
    const auto above = take_argument(text);
    const auto below = above ? take_argument(text) : std::nullopt;
    return below ? divide(*above, *below) : std::nullopt;
  }
  const auto value = take_decimal(text);
  if (!value) return std::nullopt;
  if (take(text, "/")) {
    const auto below = take_simple(text);
    return below ? divide(*value, *below) : std::nullopt;
  }
  if (take(text, "\\times10^")) {
    auto power = std::string("1e").append(text);
    std::erase_if(power, [](char c) { return c == '{' || c == '}'; });
    text = {};
    std::string_view rest = power;
    const auto factor = take_decimal(rest);
    return factor && rest.empty() ? multiply(*value, *factor) : std::nullopt;
  }
  return value;
}

}  // namespace

std::string normal_form(std::string_view answer) {
  if (answer.size() > kMaxBytes) return std::string(answer);
  while (undress(answer)) {
  }
  auto text = with_single_spaces(answer);
  return text.find_first_of("\\{") == std::string::npos ? text : plain_latex(std::move(text));
}

std::optional<Rational> number_of(std::string_view answer) {
  auto form = normal_form(answer);
  if (form.size() > kMaxBytes) return std::nullopt;
  replace_all(form, " / ", "/");
  std::string_view text = form;
  if (text.size() > 1 && is_letter(text[0])) {  // x = 5
    auto rest = trimmed(text.substr(1));
    if (take(rest, "=")) text = trimmed(rest);
  }
  bool negative = take_sign(text);
  take_currency(text);
  if (!negative) negative = take_sign(text);
  if (take_end(text, "%")) text = trimmed(text);
  const auto value = take_unsigned(text);
  if (!value || !text.empty()) return std::nullopt;
  return negative ? subtract({}, *value) : value;
}

bool same_answer(std::string_view a, std::string_view b, Compare compare) {
  if (compare != Compare::kNumber && normal_form(a) == normal_form(b)) return true;
  if (compare == Compare::kText) return false;
  const auto number = number_of(a);
  return number && number == number_of(b);
}

}  // namespace skein::rewards
