// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// skein: the program that users type. It links no LibTorch and answers in milliseconds; what needs
// tensors runs in skein-worker.

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "skein/cli/commands.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/guard.h"
#include "skein/cli/worker_program.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/stop_signals.h"
#include "skein/launch/remote/remote_start.h"

namespace skein::cli {
namespace {

struct Command {
  const char* name;
  const char* synopsis;
  const char* help;
  int (*run)(Arguments);  // null: in skein-worker
  // It sees to signals that ask for a stop itself; otherwise they end it, as every program.
  bool takes_stops = false;
  bool helps_by_verb = false;  // `skein COMMAND VERB --help` is another text
};

constexpr Command kCommands[] = {
    {"train", "CONFIG.yaml [key=value ...] [launch flags]", "train; continues a started run",
     run_train_command, /*takes_stops=*/true},
    {"plan", "CONFIG.yaml [key=value ...] [--json]", "what train would do; starts nothing",
     run_plan_command},
    {"config", "show|check|schema CONFIG.yaml ...", "the configuration, or what is wrong with it",
     run_config_command},
    {"data", "prepare|inspect CONFIG.yaml ...", "tokenise once; show what is trained on",
     run_data_command},
    {"tokenizer", "train|encode|decode ...", "make a tokenizer, and try it", run_tokenizer_command},
    {"template", "render|show|list ...", "what a model reads of a conversation",
     run_template_command},
    {"checkpoint", "list|verify DIR [--json]", "what a run has saved, and whether it is whole",
     run_checkpoint_command},
    {"merge", "ADAPTER [--base DIR] --out DIR", "an adapter and its base become a model",
     run_merge_command},
    {"export", "CHECKPOINT --out DIR [--dtype D]", "a checkpoint becomes a plain model folder",
     run_export_command},
    {"gradients", "collect|merge|score|select ...", "which training data helps? (LESS)",
     run_gradients_command, /*takes_stops=*/true, /*helps_by_verb=*/true},
    {"doctor", "[--path DIR] [--json]", "what this machine offers, and what would stop a run",
     run_doctor_command},
    {"generate", "MODEL --prompt TEXT ...", "continue a text", nullptr},
    {"chat", "MODEL [--system TEXT] ...", "talk with a model", nullptr},
    {"eval", "MODEL --dataset FILE [--json] [launch flags]", "loss and perplexity of a model",
     run_eval_command, /*takes_stops=*/true},
    {"verify-strategy", "CONFIG.yaml ... [--json]", "do all strategies learn the same?",
     run_verify_command, /*takes_stops=*/true},
    {"bench", "NAME ...", "how fast is this machine?", run_bench_launcher, /*takes_stops=*/true},
};

void print_help() {
  fmt::print("skein trains language models from one native program.\n\n");
  for (const auto& command : kCommands) {
    const auto usage = fmt::format("skein {} {}", command.name, command.synopsis);
    fmt::print("  {:<57} {}\n", usage, command.help);
  }
  fmt::print("  skein --help | --version\n\n`skein COMMAND --help` tells more.\n");
}

// What other programs have a command for and `skein train` a key.
std::string as_training(const std::string& word) {
  for (const char* stage : {"sft", "pt", "pretrain"}) {
    if (word == stage) return fmt::format("stage={}", stage);
  }
  if (word == "lora") return "finetuning_type=lora";
  if (word == "finetune" || word == "fine-tune") return "stage=sft";
  return "";
}

[[noreturn]] void refuse_command(const std::string& word) {
  if (const auto key = as_training(word); !key.empty()) {
    throw UserError(
        fmt::format("skein has no command '{}': type `skein train CONFIG.yaml {}`", word, key));
  }
  std::vector<std::string> names = {"help", "--help", "--version"};
  for (const auto& command : kCommands) names.emplace_back(command.name);
  throw UserError(fmt::format("skein has no command '{}'{} (`skein --help` lists them)", word,
                              config::did_you_mean(word, names)));
}

// `skein data prepare --help` is answered as `skein data --help`, unless verbs have help of their
// own.
int run_command(const Command& command, Arguments rest) {
  const std::string help[] = {"--help"};
  if (asks_for_help(rest) && !command.helps_by_verb) rest = help;
  if (!command.takes_stops) release_stop_signals();
  if (!command.run) exec_worker(command.name, rest);
  return command.run(rest);
}

// deepspeed's launcher puts it before the command; LOCAL_RANK says the same.
bool is_local_rank(const std::string& word) {
  return word.starts_with("--local_rank=") || word.starts_with("--local-rank=");
}

int run(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && is_local_rank(arguments[0])) {
    return run({arguments.begin() + 1, arguments.end()});
  }
  const auto word = arguments.empty() ? "--help" : arguments[0];
  const auto rest = std::span(arguments).subspan(arguments.empty() ? 0 : 1);
  for (const auto& command : kCommands) {
    if (word == command.name) return run_command(command, rest);
  }
  // Not for users: what `skein train --hostfile` starts on each host.
  if (word == "remote-node" && rest.empty()) return launch::run_remote_node();
  if (word == "help" && !rest.empty()) return run({rest[0], "--help"});
  if (word == "--help" || word == "-h" || word == "help") {
    print_help();
    return 0;
  }
  if (word == "--version") {
    fmt::print("skein {}\n", SKEIN_VERSION);
    return 0;
  }
  refuse_command(word);
}

}  // namespace
}  // namespace skein::cli

int main(int argc, char** argv) {
  skein::hold_stop_signals();  // first: there is no instant at which one is lost
  // What is started inherits both. A limit on file sizes is a full disk; and to a terminal ranks
  // are in the background, where `stty tostop` would stop them at their first line.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGTTOU, SIG_IGN);
  // Inherited as ignored, it would hide how our own children end.
  std::signal(SIGCHLD, SIG_DFL);
  skein::cli::open_missing_streams();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const int code = skein::cli::run_guarded([&] {
    // A finished training is one, whoever has lost its lines.
    if (!words.empty() && words[0] == "train") return skein::cli::run(words);
    return skein::cli::with_output([&] { return skein::cli::run(words); });
  });
  skein::cli::say_last_words();
  return code;
}
