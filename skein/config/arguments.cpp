// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "skein/config/compat/known_keys.h"
#include "skein/config/compat/translated_keys.h"
#include "skein/config/field_index.h"
#include "skein/config/syntax/values.h"
#include "skein/config/syntax/yaml_reader.h"
#include "skein/core/error.h"

namespace skein::config {
namespace {

const Origin kHere{.kind = Origin::Kind::kCommandLine};

std::string key_of(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  constexpr std::string_view kSection = "training.";
  return text.starts_with(kSection) ? text.substr(kSection.size()) : text;
}

// `--fresh recipe.yaml` must not read the file as the flag's value.
bool takes_only_booleans(const std::string& key) {
  const auto& index = field_index();
  if (const auto found = index.canonical.find(key); found != index.canonical.end()) {
    return index.booleans.contains(found->second);
  }
  if (is_translated_key(key)) return is_translated_flag(key);
  const auto* known = find_known_key(key);
  return known && is_flag(*known);
}

bool is_value_of(const std::string& key, const std::string& word) {
  if (word.starts_with("--")) return false;
  if (takes_only_booleans(key)) return parse_bool(word).has_value();
  return true;
}

// A word that stands alone and is no file: what was meant?
void refuse_stray(const std::vector<std::string>& before, const std::string& word,
                  const std::string& next) {
  std::error_code ignored;
  for (const auto* data : {".jsonl", ".txt", ".bin"}) {
    if (word.ends_with(data)) {
      throw UserError(fmt::format("command line: '{0}' is data: give train_file={0}", word));
    }
  }
  if (std::filesystem::exists(word, ignored)) return;
  if (word == "=" || next.starts_with('=')) {
    const auto key = word == "=" && !before.empty() ? before.back() : word;
    throw UserError(fmt::format("command line: write {}=value without spaces around the '='", key));
  }
  const bool after_value = before.size() > 1 && before[before.size() - 2].starts_with("--") &&
                           !before.back().starts_with("--");
  const bool is_named_so =
      word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
  if (after_value && !is_named_so) {
    throw UserError(
        fmt::format("command line: '{2}' after '{0} {1}': a list has commas, {0} {1},{2}",
                    before[before.size() - 2], before.back(), word));
  }
}

void set_config(Arguments& arguments, const std::string& file) {
  if (arguments.config) {
    throw UserError(
        fmt::format("command line: two configuration files, '{}' and '{}'; "
                    "write overrides as key=value or --key value",
                    *arguments.config, file));
  }
  arguments.config = file;
}

// A list as JSON writes it, ["a", "b"], is one; anything else is read by the type of its key.
Node node_of(const std::string& value) {
  const auto first = value.find_first_not_of(' ', 1);
  const bool is_list = value.starts_with('[') && value.ends_with(']') &&
                       first != std::string::npos && (value[first] == '"' || value[first] == '\'');
  if (!is_list) return scalar(value, kHere);
  auto list = *read_yaml("list: " + value, "command line").find("list");
  list.origin = kHere;
  for (auto& item : list.items) item.origin = kHere;
  return list;
}

void add(Arguments& arguments, const std::string& key, const std::string& value) {
  if (key.empty()) throw UserError("command line: '=' without a key before it");
  if (key == "config") {
    set_config(arguments, value);
  } else {
    arguments.overrides.push_back({key, node_of(value), kHere});
  }
}

}  // namespace

Arguments parse_arguments(std::span<const std::string> words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    const bool dashed = word.starts_with("--");
    const auto body = dashed ? word.substr(2) : word;
    const auto equals = body.find('=');
    if (!dashed && word.starts_with('-')) {
      throw UserError(fmt::format("command line: '{}' is no option; keys are --key value", word));
    }
    // A folder may be named lr=3: the key ends where a path begins.
    const bool is_path = !dashed && body.find('/') < equals;
    if (equals != std::string::npos && !is_path) {
      add(arguments, key_of(body.substr(0, equals)), body.substr(equals + 1));
    } else if (!dashed) {
      refuse_stray({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i)}, word,
                   i + 1 < words.size() ? words[i + 1] : "");
      set_config(arguments, word);
    } else {
      const auto key = key_of(body);
      const bool has_value = i + 1 < words.size() && is_value_of(key, words[i + 1]);
      add(arguments, key, has_value ? words[++i] : "true");
    }
  }
  return arguments;
}

}  // namespace skein::config
