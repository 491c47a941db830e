// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/paths.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace skein::config {
namespace {

bool begins_name(char letter) {
  return std::isalpha(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

bool is_in_name(char letter) {
  return begins_name(letter) || std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

// Empty where there is no such user.
std::string home_of(const std::string& user) {
  if (user.empty()) {
    if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
  }
  const passwd* entry = user.empty() ? ::getpwuid(::getuid()) : ::getpwnam(user.c_str());
  return entry == nullptr ? "" : entry->pw_dir;
}

std::string with_home(const std::string& text) {
  if (!text.starts_with('~')) return text;
  const auto end = std::min(text.find('/'), text.size());
  const auto home = home_of(text.substr(1, end - 1));
  return home.empty() ? text : home + text.substr(end);
}

// The name of the variable that begins at text[at], a dollar; empty: it is a plain dollar.
std::string_view name_at(std::string_view text, size_t at) {
  const bool in_braces = text.substr(at + 1).starts_with('{');
  const size_t begin = at + (in_braces ? 2 : 1);
  size_t end = begin;
  if (end < text.size() && begins_name(text[end])) {
    while (end < text.size() && is_in_name(text[end])) ++end;
  }
  if (in_braces && !text.substr(end).starts_with('}')) return {};
  return text.substr(begin, end - begin);
}

}  // namespace

std::string expanded_path(const std::string& text, const Origin& origin) {
  const auto path = with_home(text);
  std::string expanded;
  for (size_t i = 0; i < path.size(); ++i) {
    const auto name = path[i] == '$' ? name_at(path, i) : std::string_view();
    if (name.empty()) {
      expanded += path[i];
      continue;
    }
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) {
      refuse(origin,
             fmt::format("the path '{}' has ${}, which is not set in the environment", text, name));
    }
    expanded += value;
    i += name.size() + (path[i + 1] == '{' ? 2 : 0);
  }
  return expanded;
}

}  // namespace skein::config
