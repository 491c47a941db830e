// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <vector>

#include "skein/cli/flag_set.h"
#include "skein/config/load.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/data/inspect.h"
#include "skein/data/rows/inspect_rows.h"
#include "skein/data/source_files.h"
#include "skein/launch/placement/launch_flags.h"
#include "skein/plan/finetune.h"
#include "skein/plan/run_data.h"
#include "skein/text/text_codec.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein data prepare CONFIG.yaml [key=value …]    encode the data of a run ahead of time\n"
    "skein data inspect CONFIG.yaml [key=value …]    show rows as the run sees them\n"
    "    --split train|eval   which of the two (train)\n"
    "    --rows N             how many (3)\n";

config::RunConfig load(const std::vector<std::string>& words) {
  // How ranks are started does not matter here: the words may be those of `skein train`.
  auto resolved = config::load(launch::split_launch_flags(words).rest);
  plan::take_adapter_tokenizer(resolved);
  for (const auto& note : resolved.notes) fmt::print(stderr, "note: {}\n", note);
  const auto& config = resolved.config;
  for (const auto split : {data::Split::kTrain, data::Split::kEval}) {
    const auto sources = plan::sources_of(config, split);
    if (sources.files.empty()) continue;
    auto notes = sources.notes;
    if (sources.holds_text()) notes.push_back(text::bytes_note(config.model));
    for (const auto& note : notes) {
      if (!note.empty()) fmt::print(stderr, "note: {} data: {}\n", data::split_name(split), note);
    }
  }
  return resolved.config;
}

data::Split parse_split(const std::string& text) {
  if (text == "train") return data::Split::kTrain;
  if (text == "eval" || text == "validation") return data::Split::kEval;
  throw UserError(fmt::format("--split: '{}' is neither train nor eval", text));
}

// Of rows: what the label audit found, and `more` below it. Exit code 4 where it would stop a run.
int show_rows(
    const config::RunConfig& config,
    const std::function<std::string(const data::RunRowsOptions&, const data::Decode&)>& more) {
  const auto tokens = plan::open_tokens(config);
  const auto vocabulary = plan::vocabulary_of(config).value_or(tokens.encoder.vocab_size);
  auto options = plan::rows_options(config, tokens, vocabulary);
  const auto described = data::describe_rows(data::open_run_rows(options), options, tokens.audit);
  options.data.overwrite_cache = false;  // it has just been made
  fmt::print("{}{}", described.text, more(options, [&](std::span<const uint32_t> ids) {
               return tokens.tokenizer->decode(ids);
             }));
  if (!described.refusal) return 0;
  std::fflush(stdout);
  throw IoError(*described.refusal);
}

int prepare(const std::vector<std::string>& words) {
  const auto config = load(words);
  if (plan::trains_on_rows(config)) {
    return show_rows(config, [](const auto&, const auto&) { return std::string(); });
  }
  fmt::print("{}", data::describe(data::prepare_run(config), config));
  return 0;
}

// Colours only where somebody sees them.
data::Marks marks_of_stdout() {
  const char* no_color = std::getenv("NO_COLOR");
  const bool is_plain = ::isatty(STDOUT_FILENO) != 1 || (no_color && *no_color != '\0');
  return is_plain ? data::Marks::kBrackets : data::Marks::kColour;
}

int inspect(const std::vector<std::string>& arguments) {
  data::InspectOptions options{.marks = marks_of_stdout()};
  FlagSet flags("skein data inspect");
  flags.add("split", [&](const std::string& word) { options.split = parse_split(word); });
  flags.add("rows", options.rows, /*least=*/1);
  const auto words = flags.read(arguments, FlagSet::Unknown::kKeep);
  const auto config = load(words);
  if (plan::trains_on_rows(config)) {
    return show_rows(config, [&](const auto& rows, const auto& decode) {
      return data::inspect_rows(rows, options, decode);
    });
  }
  fmt::print("{}", data::inspect(config, options));
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
  throw UserError(fmt::format("skein data has no '{}'{}\n{}", verb,
                              config::did_you_mean(verb, {"prepare", "inspect"}), kUsage));
}

}  // namespace skein::cli
