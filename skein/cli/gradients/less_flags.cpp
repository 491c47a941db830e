// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Flags of LESS's programs (get_info, matching, write_selected_data) and of its projector, which
// people bring along. Each verb answers with words of its own.
#include "skein/cli/gradients/verbs.h"

namespace skein::cli {
namespace {

struct LessFlag {
  const char* verb;
  const char* name;
  const char* instead;
};

constexpr const char* kNoTasks =
    "its data sets are not built in; --train_file of `skein gradients collect` names the data, and "
    "--groups of `skein gradients score` its subtasks";
constexpr const char* kScores = "that is for `skein gradients score`";
constexpr const char* kCollects = "that is for `skein gradients collect`";

constexpr LessFlag kFlags[] = {
    {"collect", "task", kNoTasks},
    {"collect", "dims", "type --gradient_projection_dimension N, or several, 1024,8192"},
    {"collect", "dim", "type --gradient_projection_dimension N"},
    {"collect", "proj-dim", "type --gradient_projection_dimension N"},
    {"collect", "data-dir",
     "name the file, --train_file F; of validation samples too, with --validation"},
    {"collect", "use-chat-format",
     "the model's own chat format is used; --template NAME names another"},
    {"collect", "chat-format",
     "the model's own chat format is used; --template NAME names another"},
    {"collect", "train-files", "type --train_file a.jsonl,b.jsonl or --train_file_dir DIR"},
    {"collect", "train-file-names", "type --train_file F"},
    {"collect", "gradient-path", "type --output_path DIR"},
    {"collect", "validation-gradient-path", "type --output_path DIR, and --validation"},
    {"collect", "ckpts", "a collection is of one checkpoint: type --model DIR/checkpoint-N"},
    {"collect", "checkpoints", "a collection is of one checkpoint: type --model DIR/checkpoint-N"},
    {"collect", "checkpoint-weights", "type --weights X… behind `skein gradients score`"},
    {"collect", "target-task-names", kNoTasks},
    {"collect", "percentage", "type --top 5% behind `skein gradients select`"},
    {"merge", "output-path", "name the folder alone: skein gradients merge DIR"},
    {"merge", "gradient-path", "name the folder alone: skein gradients merge DIR"},
    {"merge", "dims", "all dimensions of the collection are written: leave it out"},
    {"merge", "task", kNoTasks},
    {"score", "task", "name subtasks with --groups FILE|KEY"},
    {"score", "target-task-names", "name subtasks with --groups FILE|KEY"},
    {"score", "gradient-path", "type --train DIR…, one collection for each checkpoint"},
    {"score", "validation-gradient-path",
     "type --validation DIR…, one collection for each checkpoint"},
    {"score", "train-file-names",
     "collections know their files: type --train DIR… and --name NAME"},
    {"score", "train-file", "type --train DIR…, what `skein gradients collect` made of that file"},
    {"score", "train-files", "type --train DIR…, what `skein gradients collect` made of them"},
    {"score", "ckpts", "give the folders, --checkpoints DIR…"},
    {"score", "checkpoint-weights", "type --weights X…"},
    {"score", "dims", "type --dimension D"},
    {"score", "proj-dim", "type --dimension D"},
    {"score", "gradient-projection-dimension", "type --dimension D"},
    {"score", "output-path", "type --out DIR"},
    {"score", "model", "type --checkpoints DIR…"},
    {"score", "model-path", "type --checkpoints DIR…"},
    {"score", "gradient-type", kCollects},
    {"score", "info-type", kCollects},
    {"score", "percentage", "type --top 5% behind `skein gradients select`"},
    {"select", "train-file-names", "type --train-files F…"},
    {"select", "train-file", "type --train-files F…"},
    {"select", "target-task-names", "each file of scores is a task's: type --scores F…"},
    {"select", "task", "each file of scores is a task's: type --scores F…"},
    {"select", "percentage", "type --top 5%"},
    {"select", "max-samples", "type --top N"},
    {"select", "output-path", "type --out DIR"},
    {"select", "gradient-path", kScores},
    {"select", "validation-gradient-path", kScores},
    {"select", "ckpts", kScores},
    {"select", "checkpoint-weights", kScores},
    {"select", "dims", kScores},
};

}  // namespace

void add_less_flags(FlagSet& flags, std::string_view verb) {
  for (const auto& flag : kFlags) {
    if (verb == flag.verb) flags.add_foreign(flag.name, flag.instead);
  }
}

}  // namespace skein::cli
