// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/new_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "skein/core/error.h"
#include "skein/text/parts/unicode.h"
#include "skein/text/tokenizer_json.h"

namespace skein::text {
namespace {

// Where the JSON value that begins at `begin` ends. The text is known to be JSON.
size_t end_of_value(std::string_view text, size_t begin) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = begin; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c != '"') continue;
      in_string = false;
    } else if (c == '"') {
      in_string = true;
      continue;
    } else if (c == '{' || c == '[') {
      ++depth;
      continue;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;  // of what is around a bare word
      --depth;
    } else if (depth > 0 || (c != ',' && c != ' ' && c != '\n' && c != '\r' && c != '\t')) {
      continue;
    } else {
      return at;  // behind a bare word
    }
    if (depth == 0) return at + 1;
  }
  return text.size();
}

struct Span {
  size_t begin, end;
};

// The value of a key of the outermost object.
std::optional<Span> find_member(std::string_view text, std::string_view key) {
  constexpr std::string_view kBetween = " \n\r\t,:";
  size_t at = text.find('{') + 1;
  while (true) {
    at = text.find_first_not_of(kBetween, at);
    if (at == std::string_view::npos || text[at] == '}') return std::nullopt;
    const auto name_end = end_of_value(text, at);
    const auto name = text.substr(at, name_end - at);
    const auto begin = text.find_first_not_of(kBetween, name_end);
    const auto end = end_of_value(text, begin);
    if (name == fmt::format("\"{}\"", key)) return Span{begin, end};
    at = end;
  }
}

// `entries` at the end of the list or object that lies there.
std::string appended(std::string_view text, const Span& list, const std::string& entries) {
  const auto inside = text.substr(list.begin, list.end - list.begin - 1);
  const auto last = inside.find_last_not_of(" \n\r\t");
  const auto place = list.begin + last + 1;
  const bool is_empty = last == 0;
  return fmt::format("{}{}\n{}\n  {}", text.substr(0, place), is_empty ? "" : ",", entries,
                     text.substr(list.end - 1));
}

std::string quoted(const std::string& content) { return nlohmann::json(content).dump(); }

// `begin`, the token's text, and these flags: an added token is special and nothing else.
std::string entry(const std::string& begin, const AddedToken& token,
                  std::initializer_list<const char*> flags) {
  auto text = fmt::format("    {}\n      \"content\": {}", begin, quoted(token.content));
  for (const char* flag : flags) text += fmt::format(",\n      \"{}\": false", flag);
  return text + ",\n      \"special\": true\n    }";
}

// As `tokenizers` orders them in tokenizer.json.
std::string tokenizer_entry(const AddedToken& token) {
  return entry(fmt::format("{{\n      \"id\": {},", token.id), token,
               {"single_word", "lstrip", "rstrip", "normalized"});
}

// As transformers orders them in tokenizer_config.json.
std::string config_entry(const AddedToken& token) {
  return entry(fmt::format("\"{}\": {{", token.id), token,
               {"lstrip", "normalized", "rstrip", "single_word"});
}

std::string joined(const std::vector<AddedToken>& tokens,
                   std::string (*text_of)(const AddedToken&)) {
  std::string text;
  for (const auto& token : tokens) text += (text.empty() ? "" : ",\n") + text_of(token);
  return text;
}

void check(const std::vector<std::string>& contents) {
  std::set<std::string> seen;
  for (const auto& content : contents) {
    const auto refuse = [&](const char* why) {
      throw UserError(fmt::format("new_special_tokens: '{}' {}", content, why));
    };
    if (content.empty()) refuse("is empty");
    if (valid_utf8_prefix(content) < content.size()) refuse("is not UTF-8");
    if (!seen.insert(content).second) refuse("is named twice");
  }
}

}  // namespace

std::vector<AddedToken> new_special_tokens(std::string_view tokenizer_json,
                                           const std::vector<std::string>& contents,
                                           const std::string& name) {
  check(contents);
  const auto parts = parse_tokenizer_json(tokenizer_json, name);
  // As `tokenizers` counts: behind the vocabulary, and behind all added tokens.
  auto next = static_cast<uint32_t>(parts.vocabulary.size());
  for (const auto& token : parts.added_tokens) next = std::max(next, token.id + 1);
  std::vector<AddedToken> tokens;
  for (const auto& content : contents) {
    if (std::ranges::find(parts.added_tokens, content, &AddedToken::content) !=
        parts.added_tokens.end()) {
      continue;
    }
    const auto known = parts.vocabulary.find(content);
    const auto id = known == parts.vocabulary.end() ? next++ : known->second;
    tokens.push_back({.id = id, .content = content, .special = true, .normalized = false});
  }
  return tokens;
}

std::string with_tokens(std::string_view tokenizer_json, const std::vector<AddedToken>& tokens) {
  if (tokens.empty()) return std::string(tokenizer_json);
  const auto entries = joined(tokens, tokenizer_entry);
  const auto list = find_member(tokenizer_json, "added_tokens");
  if (list && tokenizer_json[list->begin] == '[') return appended(tokenizer_json, *list, entries);
  if (list) {  // null
    return fmt::format("{}[\n{}\n  ]{}", tokenizer_json.substr(0, list->begin), entries,
                       tokenizer_json.substr(list->end));
  }
  const auto begin = tokenizer_json.find('{') + 1;
  return fmt::format("{}\n  \"added_tokens\": [\n{}\n  ],{}", tokenizer_json.substr(0, begin),
                     entries, tokenizer_json.substr(begin));
}

std::string config_with_tokens(std::string_view tokenizer_config,
                               const std::vector<AddedToken>& tokens) {
  const auto object = find_member(tokenizer_config, "added_tokens_decoder");
  const bool lists = object && tokenizer_config[object->begin] == '{';
  if (!lists || tokens.empty()) return std::string(tokenizer_config);
  return appended(tokenizer_config, *object, joined(tokens, config_entry));
}

}  // namespace skein::text
