// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "skein/cli/flag_set.h"
#include "skein/cli/key_flags.h"
#include "skein/config/help.h"
#include "skein/config/load.h"
#include "skein/config/schema.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/launch/placement/launch_flags.h"
#include "skein/plan/finetune.h"
#include "skein/plan/refusals.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein config show [--origin] CONFIG.yaml [key=value …]   the resolved configuration\n"
    "skein config check CONFIG.yaml [key=value …]             'ok', or what is wrong with it\n"
    "skein config schema                                      JSON Schema, for editors";

void print_notes(const config::Resolved& resolved) {
  for (const auto& note : resolved.notes) fmt::print(stderr, "note: {}\n", note);
}

int show(const std::vector<std::string>& arguments) {
  bool with_origins = false;
  FlagSet flags("skein config show");
  flags.add("origin", with_origins);
  const auto words =
      launch::split_launch_flags(flags.read(arguments, FlagSet::Unknown::kKeep)).rest;
  check_flags(words, {"origin"});
  const auto resolved = config::load(words);
  print_notes(resolved);
  for (const auto& detail : resolved.details) fmt::print(stderr, "note: {}\n", detail);
  fmt::print("{}", config::to_yaml(resolved, with_origins));
  return 0;
}

void note_missing(const config::Resolved& resolved) {
  const auto& config = resolved.config;
  const auto note = [](const char* key) {
    fmt::print(stderr, "note: '{}' is not given; skein train needs it\n", key);
  };
  if (config.model.model_name_or_path.empty()) note("model_name_or_path");
  if (config.data.train_file.empty() && config.data.train_file_dir.empty()) note("train_file");
  if (config.checkpoint.output_dir.empty() && config.checkpoint.experiment_name.empty())
    note("output_dir");
}

int check(const std::vector<std::string>& arguments) {
  const auto words = launch::split_launch_flags(arguments).rest;
  auto resolved = config::load(words);
  plan::take_adapter_tokenizer(resolved);
  print_notes(resolved);
  plan::check_configuration(resolved);
  // What depends on GPUs is for `skein plan`.
  for (const auto& warning : plan::run_warnings(resolved, {.device = config::Device::kCpu})) {
    fmt::print(stderr, "warning: {}\n", warning);
  }
  note_missing(resolved);
  fmt::print("ok\n");
  return 0;
}

}  // namespace

int run_config_command(std::span<const std::string> arguments) {
  if (arguments.empty()) throw UserError(fmt::format("skein config needs a word:\n{}", kUsage));
  const auto& verb = arguments[0];
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  if (asks_for_help(arguments)) {
    fmt::print("{}\n\nkeys and their defaults:\n{}", kUsage, config::key_list());
    return 0;
  }
  if (verb == "show") return show(words);
  if (verb == "check") return check(words);
  if (verb == "schema") {
    if (!words.empty()) throw UserError("skein config schema takes no arguments");
    fmt::print("{}", config::json_schema());
    return 0;
  }
  throw UserError(fmt::format("skein config has no '{}'{}\n{}", verb,
                              config::did_you_mean(verb, {"show", "check", "schema"}), kUsage));
}

}  // namespace skein::cli
