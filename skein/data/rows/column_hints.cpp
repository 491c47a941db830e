// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/column_hints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

namespace skein::data {
namespace {

constexpr size_t kMostQuestions = 3;
constexpr size_t kLongText = 80;  // bytes: what is said about a row is shorter
constexpr size_t kLongName = 40;

// Words that names of columns are made of, sorted.
constexpr std::array kAsking = std::to_array<std::string_view>(
    {"article",  "chat",      "context",     "conversation", "conversations", "dialog",
     "dialogs",  "dialogue",  "dialogues",   "document",     "history",       "human",
     "input",    "inputs",    "instruction", "instructions", "message",       "messages",
     "passage",  "post",      "problem",     "prompt",       "prompts",       "query",
     "question", "questions", "request",     "text",         "turns",         "user"});
constexpr std::array kAside = std::to_array<std::string_view>(
    {"annotation", "annotator",  "answer",   "answers",   "category", "chosen",      "comment",
     "comments",   "completion", "critique", "date",      "domain",   "explanation", "feedback",
     "generator",  "hash",       "id",       "ids",       "index",    "label",       "labels",
     "lang",       "language",   "length",   "license",   "margin",   "meta",        "metadata",
     "model",      "models",     "note",     "notes",     "output",   "principle",   "rating",
     "ratings",    "rationale",  "reason",   "reasoning", "rejected", "response",    "responses",
     "reward",     "rubric",     "score",    "scores",    "solution", "source",      "sources",
     "split",      "subset",     "system",   "tag",       "tags",     "timestamp",   "tokens",
     "tools",      "topic",      "type",     "url",       "uuid"});
static_assert(std::ranges::is_sorted(kAsking) && std::ranges::is_sorted(kAside));

bool is_upper(char letter) { return 'A' <= letter && letter <= 'Z'; }
bool is_letter(char letter) { return is_upper(letter) || ('a' <= letter && letter <= 'z'); }
bool is_digit(char letter) { return '0' <= letter && letter <= '9'; }

// In small letters: of userPrompt and user_prompt `user`, `prompt`.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  bool is_inside = false, was_upper = false;
  for (const char letter : name) {
    const bool begins = !is_inside || (is_upper(letter) && !was_upper);
    is_inside = is_letter(letter);
    was_upper = is_upper(letter);
    if (!is_inside) continue;
    if (begins) words.emplace_back();
    words.back() += was_upper ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return words;
}

bool has_word(const std::vector<std::string>& words, std::span<const std::string_view> known) {
  return std::ranges::any_of(
      words, [&](const auto& word) { return std::ranges::binary_search(known, word); });
}

bool is_message(const OrderedJson& value) {
  if (!value.is_object()) return false;
  return (value.contains("role") && value.contains("content")) ||
         (value.contains("from") && value.contains("value"));
}

// A question, or more than one says about a row.
bool is_long(std::string_view text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.ends_with('?') || text.ends_with("？")) return true;
  const bool is_word = std::ranges::none_of(
      text, [](char letter) { return letter == ' ' || letter == '\n' || (letter & 0x80) != 0; });
  return text.size() > kLongText && !is_word;
}

bool asks(const std::string& name, const OrderedJson& value) {
  const auto words = words_of(name);
  if (has_word(words, kAside)) return false;
  const bool is_called_so = has_word(words, kAsking);
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return is_called_so ? !text.empty() : is_long(text);
  }
  if (value.is_array() && !value.empty()) return is_called_so || is_message(value[0]);
  return is_message(value);
}

// Empty where a message could not show it, or a shell would read it.
std::string jq_path(std::string_view name) {
  const auto is_plain = [](char letter) {
    return is_letter(letter) || is_digit(letter) || letter == '_' || letter == '-' || letter == ' ';
  };
  if (name.empty() || name.size() > kLongName || !std::ranges::all_of(name, is_plain)) return "";
  const bool is_word = !is_digit(name[0]) && std::ranges::none_of(name, [](char letter) {
    return letter == '-' || letter == ' ';
  });
  return is_word ? fmt::format(".{}", name) : fmt::format(".[\"{}\"]", name);
}

// Empty where one is.
std::vector<std::string> jq_paths(const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const auto& name : names) paths.push_back(jq_path(name));
  if (std::ranges::find(paths, "") != paths.end()) paths.clear();
  return paths;
}

std::string command_of(const std::string& program) {
  return fmt::format("jq -c '{}' OLD.jsonl > NEW.jsonl", program);
}

}  // namespace

std::string renaming_command(const std::vector<Renaming>& renamings) {
  std::string program;
  std::vector<std::string> old;
  for (const auto& [to, from] : renamings) {
    const auto paths = jq_paths(from);
    if (paths.empty()) return "";
    program += fmt::format(".{} = {} | ", to, fmt::join(paths, R"( + "\n" + )"));
    old.insert(old.end(), paths.begin(), paths.end());
  }
  return command_of(fmt::format("{}del({})", program, fmt::join(old, ", ")));
}

std::string dropping_command(const std::vector<std::string>& names) {
  const auto paths = jq_paths(names);
  return paths.empty() ? "" : command_of(fmt::format("del({})", fmt::join(paths, ", ")));
}

std::string first_of(const RowColumns& row, std::initializer_list<std::string_view> names) {
  const auto found = std::ranges::find_if(names, [&](auto name) { return row.has(name); });
  return found == names.end() ? "" : std::string(*found);
}

std::vector<std::string> question_columns(const OrderedJson& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row.get_ref<const OrderedJson::object_t&>()) {
    if (names.size() < kMostQuestions && asks(name, value)) names.push_back(name);
  }
  return names;
}

}  // namespace skein::data
