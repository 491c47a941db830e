// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "skein/cli/commands.h"
#include "skein/cli/gradients/verbs.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein gradients merge DIR [--parts]            the rows of all ranks become one file, by "
    "sample,\n"
    "                                               and the .pt files that LESS has\n"
    "skein gradients score --train DIR… --validation DIR…   how much does each training sample "
    "help?\n"
    "    [--checkpoints DIR… | --weights X…] [--groups FILE|KEY [--validation-file F]]\n"
    "    [--dimension D] [--out DIR] [--name NAME] [--threads N]\n"
    "skein gradients select --scores F… --train-files F… --top 5%|N [--out DIR]   the best "
    "samples\n"
    "\n"
    "  --parts               merge: also dimD/grads-N.pt, 160 samples each\n"
    "  --train DIR…          score: collections of the training data, one for each checkpoint\n"
    "  --validation DIR…     score: those of the validation data, in the same order\n"
    "  --checkpoints DIR…    score: what they were collected at; each counts by its mean learning\n"
    "                        rate since the one before, of trainer_state.json\n"
    "  --weights X…          score: how much each counts, instead\n"
    "  --groups FILE|KEY     score: subtasks; a file with a name for each validation sample, or "
    "the\n"
    "                        key of the rows of --validation-file that holds it\n"
    "  --validation-file F   score: the .jsonl file of the validation samples\n"
    "  --dimension D         score: of those that were collected; absent: the largest\n"
    "  --name NAME           score: NAME_influence_score.safetensors and .pt; absent: the first\n"
    "                        training folder's\n"
    "  --threads 0           score: 0: all cores\n"
    "  --scores F…           select: what score wrote; several are taken together\n"
    "  --train-files F…      select: the .jsonl files that they are about, in the same order\n"
    "  --top 5%              select: a share of all samples, or a number\n"
    "  --out .               score, select: the folder to write to\n"
    "\n"
    "The files: docs/gradient_format.md.\n";

struct Verb {
  const char* name;
  int (*run)(Arguments);
};

// What needs tensors (collecting) is for skein-worker; these run here.
constexpr Verb kVerbs[] = {
    {"merge", merge_gradients}, {"score", score_gradients}, {"select", select_by_scores}};

}  // namespace

void add_less_flags(FlagSet& flags) {
  flags.add_foreign("task",
                    "its data sets are not built in; --train_file of `skein gradients collect` "
                    "names the data, and --groups of `skein gradients score` its subtasks");
  flags.add_foreign("target-task-names", "name subtasks with --groups FILE|KEY");
  flags.add_foreign("ckpts", "give the folders, --checkpoints DIR…");
  flags.add_foreign("checkpoint-weights", "type --weights X…");
  flags.add_foreign("percentage", "type --top 5%");
  flags.add_foreign("max-samples", "type --top N");
  flags.add_foreign("output-path", "type --out DIR");
}

int run_gradients_command(Arguments arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (arguments.empty()) throw UserError(fmt::format("skein gradients needs a word:\n{}", kUsage));
  std::vector<std::string> names;
  for (const auto& [name, run] : kVerbs) {
    if (arguments[0] == name) return run(arguments.subspan(1));
    names.emplace_back(name);
  }
  throw UserError(fmt::format("skein gradients has no '{}'{}\n{}", arguments[0],
                              config::did_you_mean(arguments[0], names), kUsage));
}

}  // namespace skein::cli
