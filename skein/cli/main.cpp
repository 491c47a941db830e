// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// skein: the program that users type. It links no LibTorch and answers in milliseconds; what needs
// tensors runs in skein-worker.

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "skein/cli/config_command.h"
#include "skein/cli/guard.h"
#include "skein/cli/train_command.h"
#include "skein/config/suggest.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

constexpr const char* kHelp =
    "skein trains language models from one native program.\n"
    "\n"
    "  skein train CONFIG.yaml [key=value ...] [launch flags]   train; continues a started run\n"
    "  skein config show|check CONFIG.yaml [key=value ...]      the configuration, or what is "
    "wrong\n"
    "  skein --help | --version\n"
    "\n"
    "`skein train --help` lists the launch flags.\n";

int run(const std::vector<std::string>& arguments) {
  const auto command = arguments.empty() ? "--help" : arguments[0];
  const auto rest = std::span(arguments).subspan(arguments.empty() ? 0 : 1);
  if (command == "train") return run_train_command(rest);
  if (command == "config") return run_config_command(rest);
  if (command == "--help" || command == "-h" || command == "help") {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (command == "--version") {
    fmt::print("skein {}\n", SKEIN_VERSION);
    return 0;
  }
  throw UserError(fmt::format("skein has no command '{}'{} (`skein --help` lists them)", command,
                              config::did_you_mean(command, {"train", "config", "help"})));
}

}  // namespace
}  // namespace skein::cli

int main(int argc, char** argv) {
  return skein::cli::run_guarded(
      [&] { return skein::cli::run(std::vector<std::string>(argv + 1, argv + argc)); });
}
