// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/generate_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

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
    "  --prompt-file FILE        one prompt: the whole file; of FILE.jsonl, each line's \"text\";\n"
    "                            -: stdin\n"
    "  --adapter DIR             a LoRA adapter as PEFT writes it, computed beside MODEL\n"
    "  --base DIR                where MODEL is an adapter: its base, if not where it says\n"
    "  --max-new-tokens N        (128)\n"
    "  --temperature X           0: always the likeliest token (1)\n"
    "  --top-k K  --top-p P  --min-p P  --repetition-penalty X\n"
    "  --seed S                  the same seed gives the same text (0)\n"
    "  --num-return N            texts per prompt (1)\n"
    "  --stop TEXT               a text ends before it; may be given several times\n"
    "  --batch-size N            texts at once at most: more need more memory (auto)\n"
    "  --device auto|cpu|cuda|cuda:N\n"
    "  --dtype auto|float32|bfloat16|float16|float64\n"
    "                            auto: bfloat16 where the files have 16 bits and the GPU computes\n"
    "                            in it, else float32\n"
    "  --json                    one JSON object per text\n"
    "  --no-stream               print the text when it is whole\n"
    "\n"
    "Defaults of the sampling flags come from generation_config.json where the folder has one.\n"
    "More: docs/generation.md\n";

namespace {

// 256 MiB: more than any context holds.
constexpr uint64_t kMaxPromptBytes = uint64_t{256} << 20;

// A pipe or a device, whose size nobody knows.
std::string read_stream(const std::string& path) {
  std::ifstream stream(path);
  std::string text;
  std::array<char, 65536> part{};
  while (stream.read(part.data(), part.size()) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(stream.gcount()));
    if (text.size() > kMaxPromptBytes) {
      throw UserError(fmt::format("--prompt-file: '{}' gives more than 256 MiB", path));
    }
  }
  return text;
}

void add_prompt_file(const std::string& named, std::vector<std::string>& prompts) {
  const std::string path = named == "-" ? "/dev/stdin" : named;
  if (!fs::exists(path) || fs::is_directory(path)) {
    throw UserError(fmt::format("--prompt-file: '{}' is not a file", path));
  }
  auto text = fs::is_regular_file(path) ? read_file(path, kMaxPromptBytes) : read_stream(path);
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

FlagSet declare(GenerateFlags& flags, bool& no_stream) {
  FlagSet set("skein generate");
  set.add("prompt", flags.prompts);
  set.add("prompt-file", [&](const std::string& path) { add_prompt_file(path, flags.prompts); });
  set.add("num-return", flags.num_return, /*least=*/1);
  set.add("batch-size", flags.batch_size, /*least=*/1);
  set.add("no-stream", no_stream);
  flags.declare(set);
  set.add("num-return-sequences", flags.num_return, /*least=*/1);  // transformers' name
  return set;
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
  flags.check();
}

}  // namespace

void SamplingFlags::declare(FlagSet& set) {
  set.add("stop", stops);
  set.add("seed", seed);
  set.add("max-new-tokens", max_new_tokens);
  set.add("temperature", temperature);
  set.add("top-k", top_k);
  set.add("top-p", top_p);
  set.add("min-p", min_p);
  set.add("repetition-penalty", repetition_penalty);
  set.add("dtype", dtype);
  set.add("device", device);
  set.add("json", json);
  set.add("adapter", adapter);
  set.add("base", base);
  // transformers' names.
  set.add_foreign("max-length", "it counts the prompt too; --max-new-tokens N counts new tokens");
  set.add_foreign("do-sample", "it samples unless told otherwise; --temperature 0 does not");
}

void SamplingFlags::check() const {
  if (max_new_tokens.value_or(1) >= 1) return;
  throw UserError(fmt::format("--max-new-tokens is {}, expected at least 1", *max_new_tokens));
}

GenerateFlags parse_generate_flags(std::span<const std::string> arguments) {
  GenerateFlags flags;
  bool no_stream = false;
  const auto words = declare(flags, no_stream).read(arguments);
  if (words.size() > 1) {
    throw UserError(fmt::format(
        "skein generate takes one model, not '{}' and '{}'; a text is given with --prompt",
        words[0], words[1]));
  }
  if (!words.empty()) flags.model = words[0];
  flags.stream = !no_stream;
  check(flags);
  return flags;
}

rollout::SamplingOptions sampling_of(const SamplingFlags& flags,
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
  sampling.seed = static_cast<uint64_t>(flags.seed);
  const bool asks_to_sample = flags.temperature || flags.top_k || flags.top_p || flags.min_p;
  if (!folder.do_sample.value_or(true) && !asks_to_sample) sampling.temperature = 0;
  sampling.check();
  return sampling;
}

}  // namespace skein::cli
