// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/tokenizer_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/text/tokenizer.h"
#include "skein/text/train_tokenizer.h"

namespace skein::cli {
namespace {

using Json = nlohmann::json;

constexpr const char* kUsage =
    "skein tokenizer train --input F… --vocab-size N --out DIR   learn one from .txt and .jsonl "
    "files\n"
    "    [--min-frequency 2] [--special-token T…] [--threads N]\n"
    "skein tokenizer encode DIR [--text T]                      text (or stdin) to token ids\n"
    "    [--json | --lines] [--no-special-tokens]\n"
    "skein tokenizer decode DIR [ID…]                           token ids (or stdin) to text\n"
    "    [--lines] [--skip-special-tokens]\n"
    "\n"
    "  --json   print the ids as a JSON list\n"
    "  --lines  JSON lines from stdin, one text \"…\" (encode) or list of ids (decode) each;\n"
    "           one answer per line\n";

// The words after a verb: flags with their values, and what belongs to no flag.
class Arguments {
 public:
  // How many values does a flag take?
  enum class Takes { kNone, kOne, kMany };
  struct Flag {
    std::string name;
    Takes takes;
  };

  Arguments(std::span<const std::string> words, const std::vector<Flag>& flags) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (!words[i].starts_with("--")) {
        rest_.push_back(words[i]);
        continue;
      }
      const auto& flag = known(words[i], flags);
      auto& values = given_.emplace_back(flag.name, std::vector<std::string>()).second;
      const auto is_value = [&] { return i + 1 < words.size() && !words[i + 1].starts_with("--"); };
      // One value is taken whatever it looks like: a text may begin with dashes.
      if (flag.takes == Takes::kOne && i + 1 < words.size()) values.push_back(words[++i]);
      while (flag.takes == Takes::kMany && is_value()) values.push_back(words[++i]);
      if (flag.takes != Takes::kNone && values.empty()) {
        throw UserError(fmt::format("{} needs a value:\n{}", flag.name, kUsage));
      }
    }
  }

  const std::vector<std::string>& rest() const { return rest_; }
  bool has(std::string_view flag) const { return !given(flag).empty(); }

  std::vector<std::string> values(std::string_view flag) const {
    std::vector<std::string> all;
    for (const auto& some : given(flag)) all.insert(all.end(), some.begin(), some.end());
    return all;
  }

  std::optional<std::string> value(std::string_view flag) const {
    const auto all = values(flag);
    return all.empty() ? std::nullopt : std::optional(all.back());
  }

  int64_t number(std::string_view flag, int64_t otherwise) const {
    const auto text = value(flag);
    if (!text) return otherwise;
    int64_t number = 0;
    const auto* end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, number);
    if (error != std::errc() || stop != end || number < 0) {
      throw UserError(fmt::format("{} needs a whole number, not '{}'", flag, *text));
    }
    return number;
  }

 private:
  static const Flag& known(const std::string& word, const std::vector<Flag>& flags) {
    std::vector<std::string> names;
    for (const auto& flag : flags) {
      if (flag.name == word) return flag;
      names.push_back(flag.name);
    }
    throw UserError(fmt::format("skein tokenizer: unknown flag '{}'{}", word,
                                config::did_you_mean(word, names)));
  }

  std::vector<std::vector<std::string>> given(std::string_view flag) const {
    std::vector<std::vector<std::string>> found;
    for (const auto& [name, values] : given_) {
      if (name == flag) found.push_back(values);
    }
    return found;
  }

  std::vector<std::pair<std::string, std::vector<std::string>>> given_;
  std::vector<std::string> rest_;
};

using Takes = Arguments::Takes;

std::string read_stdin() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

text::Tokenizer load(const Arguments& arguments) {
  if (arguments.rest().empty()) {
    throw UserError(fmt::format("a folder with a tokenizer.json is missing:\n{}", kUsage));
  }
  return text::Tokenizer::load(arguments.rest()[0]);
}

int train(std::span<const std::string> words) {
  const Arguments arguments(words, {{"--input", Takes::kMany},
                                    {"--vocab-size", Takes::kOne},
                                    {"--out", Takes::kOne},
                                    {"--min-frequency", Takes::kOne},
                                    {"--special-token", Takes::kMany},
                                    {"--threads", Takes::kOne}});
  if (!arguments.rest().empty()) {
    throw UserError(fmt::format("skein tokenizer train: '{}' belongs to no flag:\n{}",
                                arguments.rest()[0], kUsage));
  }
  text::TokenizerTrainOptions options;
  for (const auto& input : arguments.values("--input")) options.inputs.emplace_back(input);
  options.vocab_size = arguments.number("--vocab-size", 0);
  options.out = arguments.value("--out").value_or("");
  options.min_frequency = arguments.number("--min-frequency", 2);
  options.special_tokens = arguments.values("--special-token");
  options.threads = static_cast<int>(std::min<int64_t>(arguments.number("--threads", 0), 1024));
  const auto summary = text::train_tokenizer(options);
  if (summary.vocab_size < options.vocab_size) {
    log_warning("the text has no more pairs that occur {} times: {} tokens, not {}",
                options.min_frequency, summary.vocab_size, options.vocab_size);
  }
  log_info("{}: {} tokens, {} merges, from {} words ({} different)",
           (options.out / "tokenizer.json").string(), summary.vocab_size, summary.num_merges,
           summary.num_words, summary.num_unique_words);
  return 0;
}

// Calls answer(value) for every line of stdin, and prints what it returns.
void for_each_line(const std::function<Json(const Json&)>& answer) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    try {
      fmt::print("{}\n", answer(Json::parse(line)).dump());
    } catch (const Json::exception&) {
      throw UserError(
          fmt::format("stdin:{}: expected a JSON string (encode) or a JSON list of "
                      "token ids (decode)",
                      number));
    }
  }
}

int encode(std::span<const std::string> words) {
  const Arguments arguments(words, {{"--text", Takes::kOne},
                                    {"--json", Takes::kNone},
                                    {"--lines", Takes::kNone},
                                    {"--no-special-tokens", Takes::kNone}});
  const auto tokenizer = load(arguments);
  const text::EncodeOptions options{.add_special_tokens = !arguments.has("--no-special-tokens")};
  if (arguments.rest().size() > 1) {
    throw UserError(
        fmt::format("skein tokenizer encode: give the text as --text '{}'", arguments.rest()[1]));
  }
  if (arguments.has("--lines")) {
    for_each_line(
        [&](const Json& text) { return Json(tokenizer.encode(text.get<std::string>(), options)); });
    return 0;
  }
  const auto text = arguments.value("--text");
  const auto ids = tokenizer.encode(text ? *text : read_stdin(), options);
  fmt::print("{}\n",
             arguments.has("--json") ? Json(ids).dump() : fmt::format("{}", fmt::join(ids, " ")));
  return 0;
}

std::vector<uint32_t> parse_ids(std::string_view text) {
  std::vector<uint32_t> ids;
  // Also what `encode --json` printed.
  constexpr std::string_view kBetween = " \t\r\n,[]";
  for (size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    const auto word = text.substr(at, text.find_first_of(kBetween, at) - at);
    const auto [stop, error] =
        std::from_chars(word.data(), word.data() + word.size(), ids.emplace_back());
    if (error != std::errc() || stop != word.data() + word.size()) {
      throw UserError(fmt::format("'{}' is not a token id", word.substr(0, 64)));
    }
    at += word.size();
  }
  return ids;
}

int decode(std::span<const std::string> words) {
  const Arguments arguments(words,
                            {{"--lines", Takes::kNone}, {"--skip-special-tokens", Takes::kNone}});
  const auto tokenizer = load(arguments);
  const text::DecodeOptions options{.skip_special_tokens = arguments.has("--skip-special-tokens")};
  if (arguments.has("--lines")) {
    for_each_line([&](const Json& ids) {
      return Json(tokenizer.decode(ids.get<std::vector<uint32_t>>(), options));
    });
    return 0;
  }
  const auto& rest = arguments.rest();
  const auto ids =
      parse_ids(rest.size() > 1 ? fmt::format("{}", fmt::join(rest.begin() + 1, rest.end(), " "))
                                : read_stdin());
  for (const uint32_t id : ids) {
    if (!tokenizer.token_of(id)) {
      throw UserError(fmt::format("{} is no token id of {}: it has ids 0 to {}", id, rest[0],
                                  tokenizer.vocab_size() - 1));
    }
  }
  fmt::print("{}\n", tokenizer.decode(ids, options));
  return 0;
}

}  // namespace

int run_tokenizer_command(std::span<const std::string> arguments) {
  if (arguments.empty()) throw UserError(fmt::format("skein tokenizer needs a word:\n{}", kUsage));
  const auto& verb = arguments[0];
  const auto words = arguments.subspan(1);
  if (verb == "--help" || verb == "-h") {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (verb == "train") return train(words);
  if (verb == "encode") return encode(words);
  if (verb == "decode") return decode(words);
  throw UserError(fmt::format("skein tokenizer has no '{}'{}\n{}", verb,
                              config::did_you_mean(verb, {"train", "encode", "decode"}), kUsage));
}

}  // namespace skein::cli
