// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <vector>

#include "skein/cli/flag_set.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/text/tokenizer.h"
#include "skein/text/train_tokenizer.h"

namespace skein::cli {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLineLimits{.bytes = uint64_t{1} << 30};

constexpr const char* kUsage =
    "skein tokenizer train --input F… --vocab-size N --out DIR   learn one from .txt and .jsonl "
    "files\n"
    "    [--min-frequency 2] [--special-token T…] [--threads N] [--overwrite]\n"
    "skein tokenizer encode DIR [--text T]                      text (or stdin) to token ids\n"
    "    [--json | --lines] [--offsets] [--no-special-tokens]\n"
    "skein tokenizer decode DIR [ID…]                           token ids (or stdin) to text\n"
    "    [--lines] [--skip-special-tokens]\n"
    "skein tokenizer bench DIR [--ids FILE]                     how fast are the texts of stdin "
    "(JSON\n"
    "    strings, one per line) encoded by one thread? FILE gets the ids, 32 bits each\n"
    "\n"
    "  --json     print the ids as a JSON list\n"
    "  --lines    JSON lines from stdin, one text \"…\" (encode) or list of ids (decode) each;\n"
    "             one answer per line\n"
    "  --offsets  print {\"ids\": […], \"offsets\": [[begin, end], …]}: the bytes of the text "
    "that\n"
    "             each token stands for\n";

std::string read_stdin() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

text::Tokenizer load(const std::vector<std::string>& words) {
  if (words.empty()) {
    throw UserError(fmt::format("a folder with a tokenizer.json is missing:\n{}", kUsage));
  }
  return text::Tokenizer::load(words[0]);
}

int train(std::span<const std::string> arguments) {
  text::TokenizerTrainOptions options;
  std::vector<std::string> inputs;
  std::string out;
  int64_t threads = 0, min_frequency = 2;
  FlagSet flags("skein tokenizer train");
  flags.add_list("input", inputs);
  flags.add("vocab-size", options.vocab_size);
  flags.add("out", out);
  flags.add("overwrite", options.overwrite);
  flags.add("min-frequency", min_frequency);
  flags.add_list("special-token", options.special_tokens);
  flags.add("threads", threads);
  if (const auto words = flags.read(arguments); !words.empty()) {
    throw UserError(
        fmt::format("skein tokenizer train: '{}' belongs to no flag:\n{}", words[0], kUsage));
  }
  options.inputs.assign(inputs.begin(), inputs.end());
  options.out = out;
  options.min_frequency = static_cast<uint64_t>(min_frequency);
  options.threads = static_cast<int>(std::min<int64_t>(threads, 1024));
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
    const auto asked = json_if_valid(line, kLineLimits);
    std::optional<std::string> said;
    try {
      if (asked) said = answer(*asked).dump();
    } catch (const Json::exception&) {  // a value of another kind
    }
    if (!said) {
      throw UserError(
          fmt::format("stdin:{}: expected a JSON string (encode) or a JSON list of "
                      "token ids (decode)",
                      number));
    }
    fmt::print("{}\n", *said);
  }
}

Json with_offsets(const text::Encoded& encoded) {
  auto offsets = Json::array();
  for (const auto& span : encoded.spans) offsets.push_back({span.begin, span.end});
  return {{"ids", encoded.ids}, {"offsets", std::move(offsets)}};
}

int encode(std::span<const std::string> arguments) {
  std::optional<std::string> text;
  bool json = false, lines = false, offsets = false, no_special_tokens = false;
  FlagSet flags("skein tokenizer encode");
  flags.add("text", text);
  flags.add("json", json);
  flags.add("lines", lines);
  flags.add("offsets", offsets);
  flags.add("no-special-tokens", no_special_tokens);
  const auto words = flags.read(arguments);
  const auto tokenizer = load(words);
  const text::EncodeOptions options{.add_special_tokens = !no_special_tokens};
  if (words.size() > 1) {
    throw UserError(fmt::format("skein tokenizer encode: give the text as --text '{}'", words[1]));
  }
  if (lines && text) throw UserError("skein tokenizer encode: --text or --lines, not both");
  const auto answer = [&](const std::string& whole) {
    if (offsets) return with_offsets(tokenizer.encode_with_offsets(whole, options));
    return Json(tokenizer.encode(whole, options));
  };
  if (lines) {
    for_each_line([&](const Json& line) { return answer(line.get<std::string>()); });
    return 0;
  }
  const auto found = answer(text ? *text : read_stdin());
  fmt::print("{}\n", json || offsets
                         ? found.dump()
                         : fmt::format("{}", fmt::join(found.get<std::vector<uint32_t>>(), " ")));
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

int decode(std::span<const std::string> arguments) {
  bool lines = false;
  text::DecodeOptions options{.skip_special_tokens = false};
  FlagSet flags("skein tokenizer decode");
  flags.add("lines", lines);
  flags.add("skip-special-tokens", options.skip_special_tokens);
  const auto words = flags.read(arguments);
  const auto tokenizer = load(words);
  if (lines) {
    for_each_line([&](const Json& ids) {
      return Json(tokenizer.decode(ids.get<std::vector<uint32_t>>(), options));
    });
    return 0;
  }
  const auto ids =
      parse_ids(words.size() > 1 ? fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " "))
                                 : read_stdin());
  for (const uint32_t id : ids) {
    if (!tokenizer.token_of(id)) {
      throw UserError(fmt::format("{} is no token id of {}: it has ids 0 to {}", id, words[0],
                                  tokenizer.vocab_size() - 1));
    }
  }
  fmt::print("{}\n", tokenizer.decode(ids, options));
  return 0;
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<std::string> read_texts() {
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = json_if_valid(line, kLineLimits);
    if (!text || !text->is_string()) {
      throw UserError(fmt::format("stdin:{}: expected a JSON string", texts.size() + 1));
    }
    texts.push_back(text->get<std::string>());
  }
  return texts;
}

void write_ids(const fs::path& path, const std::vector<std::vector<uint32_t>>& ids) {
  const auto file = File::create(path);
  uint64_t done = 0;
  for (const auto& text : ids) {
    file.write_at(done, std::as_bytes(std::span(text)));
    done += text.size() * sizeof(uint32_t);
  }
}

int bench(std::span<const std::string> arguments) {
  std::optional<std::string> ids_path;
  FlagSet flags("skein tokenizer bench");
  flags.add("ids", ids_path);
  const auto tokenizer = load(flags.read(arguments));
  const auto texts = read_texts();
  std::vector<std::vector<uint32_t>> ids(texts.size());
  const double begin = thread_seconds();
  for (size_t i = 0; i < texts.size(); ++i) ids[i] = tokenizer.encode(texts[i]);
  const double seconds = thread_seconds() - begin;
  size_t bytes = 0, tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    bytes += texts[i].size();
    tokens += ids[i].size();
  }
  if (ids_path) write_ids(*ids_path, ids);
  fmt::print(
      "{}\n",
      Json{{"texts", texts.size()}, {"bytes", bytes}, {"tokens", tokens}, {"cpu_seconds", seconds}}
          .dump());
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
  if (verb == "bench") return bench(words);
  throw UserError(fmt::format("skein tokenizer has no '{}'{}\n{}", verb,
                              config::did_you_mean(verb, {"train", "encode", "decode", "bench"}),
                              kUsage));
}

}  // namespace skein::cli
