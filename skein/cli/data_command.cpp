// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/data_command.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <optional>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/data/inspect.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein data prepare CONFIG.yaml [key=value …]    encode the data of a run ahead of time\n"
    "skein data inspect CONFIG.yaml [key=value …]    show rows as the run sees them\n"
    "    --split train|eval   which of the two (train)\n"
    "    --rows N             how many (3)\n";

config::RunConfig load(const std::vector<std::string>& words) {
  const auto resolved = config::load(words);
  for (const auto& note : resolved.notes) fmt::print(stderr, "note: {}\n", note);
  return resolved.config;
}

// Takes `--name VALUE` or `--name=VALUE` out of the words.
std::optional<std::string> take_flag(std::vector<std::string>& words, const std::string& name) {
  std::optional<std::string> value;
  for (auto word = words.begin(); word != words.end();) {
    if (word->starts_with(name + "=")) {
      value = word->substr(name.size() + 1);
      word = words.erase(word);
    } else if (*word == name) {
      if (word + 1 == words.end()) throw UserError(fmt::format("{} needs a value", name));
      value = *(word + 1);
      word = words.erase(word, word + 2);
    } else {
      ++word;
    }
  }
  return value;
}

data::Split parse_split(const std::string& text) {
  if (text == "train") return data::Split::kTrain;
  if (text == "eval" || text == "validation") return data::Split::kEval;
  throw UserError(fmt::format("--split: '{}' is neither train nor eval", text));
}

int64_t parse_rows(const std::string& text) {
  int64_t rows = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rows);
  if (error != std::errc() || end != text.data() + text.size() || rows < 1) {
    throw UserError(fmt::format("--rows: '{}' is no positive number", text));
  }
  return rows;
}

int prepare(const std::vector<std::string>& words) {
  const auto config = load(words);
  fmt::print("{}", data::describe(data::prepare_run(config), config));
  return 0;
}

int inspect(std::vector<std::string> words) {
  data::InspectOptions options;
  if (const auto split = take_flag(words, "--split")) options.split = parse_split(*split);
  if (const auto rows = take_flag(words, "--rows")) options.rows = parse_rows(*rows);
  fmt::print("{}", data::inspect(load(words), options));
  return 0;
}

}  // namespace

int run_data_command(std::span<const std::string> arguments) {
  if (arguments.empty()) throw UserError(fmt::format("skein data needs a word:\n{}", kUsage));
  const auto& verb = arguments[0];
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (verb == "--help" || verb == "-h") {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (verb == "prepare") return prepare(words);
  if (verb == "inspect") return inspect(words);
  throw UserError(fmt::format("skein data has no '{}':\n{}", verb, kUsage));
}

}  // namespace skein::cli
