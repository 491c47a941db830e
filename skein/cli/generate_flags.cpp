// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/generate_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/text/jsonl.h"

namespace skein::cli {

const char* const kGenerateUsage =
    "skein generate MODEL --prompt TEXT [--prompt TEXT ...] [flags]\n"
    "\n"
    "Continues each prompt with the model of a folder: config.json, weights and, where it has "
    "one,\n"
    "tokenizer.json (without: bytes). New text goes to stdout, notes to stderr.\n"
    "\n"
    "  --prompt TEXT             may be given several times\n"
    "  --prompt-file FILE        one prompt: the whole file; of FILE.jsonl, each line's \"text\"\n"
    "  --max-new-tokens N        (128)\n"
    "  --temperature X           0: always the likeliest token (1)\n"
    "  --top-k K  --top-p P  --min-p P  --repetition-penalty X\n"
    "  --seed S                  the same seed gives the same text (0)\n"
    "  --num-return N            texts per prompt (1)\n"
    "  --stop TEXT               a text ends before it; may be given several times\n"
    "  --batch-size N            texts at once: more need more memory (64)\n"
    "  --device auto|cpu|cuda|cuda:N   --dtype auto|float32|bfloat16|float64\n"
    "  --json                    one JSON object per text\n"
    "  --no-stream               print the text when it is whole\n"
    "\n"
    "Defaults of the sampling flags come from generation_config.json where the folder has one.\n"
    "More: docs/generation.md\n";

namespace {

// 256 MiB: more than any context holds.
constexpr uint64_t kMaxPromptBytes = uint64_t{256} << 20;

template <typename Number>
Number parse_number(const std::string& flag, const std::string& text, const char* expected) {
  Number value{};
  const auto* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) {
    throw UserError(fmt::format("{} is '{}', expected {}", flag, text, expected));
  }
  return value;
}

void add_prompt_file(const std::string& path, std::vector<std::string>& prompts) {
  if (!fs::is_regular_file(path)) {
    throw UserError(fmt::format("--prompt-file: '{}' is not a file", path));
  }
  auto text = read_file(path, kMaxPromptBytes);
  if (!path.ends_with(".jsonl")) {
    if (text.ends_with('\n')) text.pop_back();
    prompts.push_back(std::move(text));
    return;
  }
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      prompts.push_back(text::text_of_line(line));
    } catch (const IoError& error) {
      throw IoError(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
}

using Setters = std::map<std::string, std::function<void(const std::string& value)>>;

Setters value_setters(GenerateFlags& flags) {
  const auto integer = [](const std::string& flag, auto& target) {
    return [flag, &target](const std::string& value) {
      target = parse_number<int64_t>(flag, value, "an integer");
    };
  };
  const auto real = [](const std::string& flag, auto& target) {
    return [flag, &target](const std::string& value) {
      target = parse_number<double>(flag, value, "a number");
    };
  };
  const auto word = [](std::string& target) {
    return [&target](const std::string& value) { target = value; };
  };
  return {
      {"--prompt", [&](const std::string& value) { flags.prompts.push_back(value); }},
      {"--prompt-file", [&](const std::string& value) { add_prompt_file(value, flags.prompts); }},
      {"--stop", [&](const std::string& value) { flags.stops.push_back(value); }},
      {"--seed",
       [&](const std::string& value) {
         flags.seed = parse_number<uint64_t>("--seed", value, "an integer of 0 or more");
       }},
      {"--max-new-tokens", integer("--max-new-tokens", flags.max_new_tokens)},
      {"--top-k", integer("--top-k", flags.top_k)},
      {"--num-return", integer("--num-return", flags.num_return)},
      {"--batch-size", integer("--batch-size", flags.batch_size)},
      {"--temperature", real("--temperature", flags.temperature)},
      {"--top-p", real("--top-p", flags.top_p)},
      {"--min-p", real("--min-p", flags.min_p)},
      {"--repetition-penalty", real("--repetition-penalty", flags.repetition_penalty)},
      {"--dtype", word(flags.dtype)},
      {"--device", word(flags.device)},
  };
}

std::string with_dashes(std::string flag) {
  std::ranges::replace(flag, '_', '-');
  return flag;
}

[[noreturn]] void refuse_flag(const std::string& flag, const Setters& setters) {
  std::vector<std::string> known{"--json", "--no-stream", "--help"};
  for (const auto& [name, set] : setters) known.push_back(name);
  throw UserError(
      fmt::format("skein generate has no flag '{}'{} (`skein generate --help` lists them)", flag,
                  config::did_you_mean(flag, known)));
}

void check(const GenerateFlags& flags) {
  if (flags.model.empty()) {
    throw UserError("skein generate needs a model's folder: skein generate MODEL --prompt TEXT");
  }
  if (flags.prompts.empty()) {
    throw UserError("skein generate needs a prompt: --prompt TEXT or --prompt-file FILE");
  }
  for (size_t i = 0; i < flags.prompts.size(); ++i) {
    if (!flags.prompts[i].empty()) continue;
    throw UserError(fmt::format("prompt {} is empty: there is nothing to continue", i + 1));
  }
  for (const auto& [flag, value] : {std::pair{"--num-return", flags.num_return},
                                    {"--batch-size", flags.batch_size},
                                    {"--max-new-tokens", flags.max_new_tokens.value_or(1)}}) {
    if (value < 1) throw UserError(fmt::format("{} is {}, expected at least 1", flag, value));
  }
}

}  // namespace

GenerateFlags parse_generate_flags(std::span<const std::string> arguments) {
  GenerateFlags flags;
  const auto setters = value_setters(flags);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& word = arguments[i];
    if (!word.starts_with('-')) {
      if (!flags.model.empty()) {
        throw UserError(
            fmt::format("skein generate takes one model, not '{}' and '{}'; a text is "
                        "given with --prompt",
                        flags.model, word));
      }
      flags.model = word;
      continue;
    }
    const auto equals = word.find('=');
    const auto flag = with_dashes(word.substr(0, equals));
    const auto setter = setters.find(flag);
    if (setter == setters.end()) {
      if (flag == "--json") {
        flags.json = true;
      } else if (flag == "--no-stream") {
        flags.stream = false;
      } else {
        refuse_flag(flag, setters);
      }
    } else if (equals != std::string::npos) {
      setter->second(word.substr(equals + 1));
    } else if (++i < arguments.size()) {
      setter->second(arguments[i]);
    } else {
      throw UserError(fmt::format("{} needs a value", flag));
    }
  }
  check(flags);
  return flags;
}

rollout::SamplingOptions sampling_of(const GenerateFlags& flags,
                                     const rollout::GenerationConfig& folder) {
  rollout::SamplingOptions sampling;
  const auto choose = [](auto& option, const auto& flag, const auto& file) {
    if (flag || file) option = flag ? *flag : *file;
  };
  choose(sampling.temperature, flags.temperature, folder.temperature);
  choose(sampling.top_k, flags.top_k, folder.top_k);
  choose(sampling.top_p, flags.top_p, folder.top_p);
  choose(sampling.min_p, flags.min_p, folder.min_p);
  choose(sampling.repetition_penalty, flags.repetition_penalty, folder.repetition_penalty);
  sampling.seed = flags.seed;
  const bool asks_to_sample = flags.temperature || flags.top_k || flags.top_p || flags.min_p;
  if (!folder.do_sample.value_or(true) && !asks_to_sample) sampling.temperature = 0;
  sampling.check();
  return sampling;
}

}  // namespace skein::cli
