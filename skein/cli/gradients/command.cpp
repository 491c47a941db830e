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
    "skein gradients collect [CONFIG.yaml] --train_file F --model M --output_path DIR [key=value "
    "...]\n"
    "    [--gradient_projection_dimension 8192] [--gradient_type adam|sgd|sign] [--validation]\n"
    "    [--info_type grads|reps|loss] [--max_samples N] [--max_length 2048] [launch flags]\n"
    "                                               a row of numbers for each sample's gradient\n"
    "skein gradients merge DIR [--parts]            the rows of all ranks become one file, by "
    "sample,\n"
    "                                               and the .pt files that LESS has\n"
    "skein gradients score --train DIR… --validation DIR…   how much does each training sample "
    "help?\n"
    "    [--checkpoints DIR… | --weights X…] [--groups FILE|KEY [--validation-file F]]\n"
    "    [--dimension D] [--out DIR] [--name NAME] [--threads N]\n"
    "skein gradients select --scores F… --train-files F… --top 5%|N [--out DIR]   the best "
    "samples\n"
    "skein gradients selftest [launch flags]        do several ranks collect what one does? (a "
    "minute)\n"
    "\n"
    "  --train_file F        collect: rows as `stage: sft` reads them\n"
    "  --model M             collect: an adapter, a checkpoint-N of one, or a model, which gets a "
    "new\n"
    "                        adapter (--initialize_lora, --lora_r 8, --lora_alpha 32); also\n"
    "                        --model_path; --base: of an adapter, if not where it says\n"
    "  --output_path DIR     collect: where shards go; a collection that was begun is continued\n"
    "  --gradient_projection_dimension 8192   collect: or several, 1024,8192: one pass\n"
    "  --projection dense    collect: or factorised, columns for each parameter; sgd alone\n"
    "  --gradient_type T     collect: adam where M has moments, else and with --validation sgd\n"
    "  --adam_form less      collect: epsilon inside the root, no correction; or standard\n"
    "  --info_type grads     collect: or reps (last hidden states), loss\n"
    "  --parameters adapter  collect: or full, or names (self_attn.q_proj,norm)\n"
    "  --max_samples N       collect: the first N rows alone\n"
    "  --max_length 2048     collect: tokens of a row\n"
    "  --output_dtype float32   collect: or float16\n"
    "  --non_finite error    collect: or skip, which lists such samples and goes on\n"
    "  --block_samples N     collect: rows of a shard (128, or fewer where they are long)\n"
    "  --batch_tokens 8192   collect: tokens that go through the model together\n"
    "  --gradient_memory N   collect: bytes of gradients that are formed at a time (268435456)\n"
    "  --world_size, --rank, --local_rank, --master_addr, --master_port   collect: ranks as "
    "LESS's\n"
    "                        guides start them; launch flags are those of `skein train`\n"
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
    "  --train-files F…      select: the .jsonl files that they are about, in the same order; of "
    "one\n"
    "                        file of scores all of them\n"
    "  --top 5%              select: a share of all samples, or a number\n"
    "  --out .               score, select: the folder to write to\n"
    "\n"
    "The files: docs/gradient_format.md.\n";

struct Verb {
  const char* name;
  int (*run)(Arguments);
};

constexpr Verb kVerbs[] = {{"collect", collect_gradients},  // starts ranks
                           {"merge", merge_gradients},
                           {"score", score_gradients},
                           {"select", select_by_scores},
                           {"selftest", selftest_gradients}};

}  // namespace

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
