// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>
#include <string>
#include <vector>

#include "skein/cli/commands.h"
#include "skein/cli/gradients/verbs.h"
#include "skein/config/syntax/suggest.h"
#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/log.h"

namespace skein::cli {
namespace {

constexpr const char* kAfter = "\nThe files: docs/gradient_format.md. More: docs/gradients.md.\n";

struct Verb {
  const char* name;
  int (*run)(Arguments);
  const char* usage;
  const char* flags;
};

constexpr Verb kVerbs[] = {
    {"collect", collect_gradients,
     "skein gradients collect [CONFIG.yaml] --train_file F --model M --output_path DIR [key=value "
     "...]\n"
     "    [--gradient_projection_dimension 8192] [--gradient_type adam|sgd|sign] [--validation]\n"
     "    [--info_type grads|reps|loss] [--max_samples N] [--max_length 2048] [launch flags]\n"
     "                                               a row of numbers for each sample's gradient\n",
     "  --train_file F        rows as `stage: sft` reads them; several: a.jsonl,b.jsonl\n"
     "  --model M             an adapter, a checkpoint-N of one, or a model, which gets a new\n"
     "                        adapter (--initialize_lora, --lora_r 8, --lora_alpha 32); also\n"
     "                        --model_path; --base: of an adapter, if not where it says\n"
     "  --output_path DIR     where shards go; a collection that was begun is continued\n"
     "  --gradient_projection_dimension 8192   or several, 1024,8192: one pass\n"
     "  --projection dense    or factorised, columns for each parameter; sgd alone\n"
     "  --gradient_type T     adam where M has moments, else and with --validation sgd\n"
     "  --validation          the rows are validation data\n"
     "  --adam_form less      epsilon inside the root, no correction; or standard\n"
     "  --info_type grads     or reps (last hidden states), loss\n"
     "  --parameters adapter  or full, or names (self_attn.q_proj,norm)\n"
     "  --max_samples N       the first N rows alone; of a configuration: max_train_samples\n"
     "  --max_length 2048     tokens of a row; of a configuration: cutoff_len\n"
     "  --output_dtype float32   or float16\n"
     "  --non_finite error    or skip, which lists such samples and goes on\n"
     "  --block_samples N     rows of a shard (128, or fewer where they are long)\n"
     "  --batch_tokens 8192   tokens that go through the model together\n"
     "  --gradient_memory N   bytes of gradients that are formed at a time (268435456)\n"
     "  --world_size, --rank, --local_rank, --master_addr, --master_port   ranks as LESS's guides\n"
     "                        start them; launch flags are those of `skein train`\n"
     "  seed=N                of the projection (0) and of a new adapter\n"},
    {"merge", merge_gradients,
     "skein gradients merge DIR [--parts]            the rows of all ranks become one file, by "
     "sample,\n"
     "                                               and the .pt files that LESS has\n",
     "  --parts               also dimD/grads-N.pt, 160 samples each\n"},
    {"score", score_gradients,
     "skein gradients score --train DIR… --validation DIR…   how much does each training sample "
     "help?\n"
     "    [--checkpoints DIR… | --weights X…] [--groups FILE|KEY [--validation-file F]]\n"
     "    [--dimension D] [--out DIR] [--name NAME] [--threads N]\n",
     "  --train DIR…          collections of the training data, one for each checkpoint\n"
     "  --validation DIR…     those of the validation data, in the same order\n"
     "  --checkpoints DIR…    what they were collected at; each counts by its mean learning\n"
     "                        rate since the one before, of trainer_state.json\n"
     "  --weights X…          how much each counts, instead\n"
     "  --groups FILE|KEY     subtasks; a file with a name for each validation sample, or the\n"
     "                        key of the rows of --validation-file that holds it\n"
     "  --validation-file F   the .jsonl file of the validation samples\n"
     "  --dimension D         of those that were collected; absent: the largest that all have\n"
     "  --name NAME           NAME_influence_score.safetensors and .pt; absent: the first\n"
     "                        training folder's\n"
     "  --threads 0           0: all cores\n"
     "  --out .               the folder to write to\n"},
    {"select", select_by_scores,
     "skein gradients select --scores F… --train-files F… --top 5%|N [--out DIR]   the best "
     "samples\n",
     "  --scores F…           what score wrote, or its folder; several are taken together\n"
     "  --train-files F…      the .jsonl files that they are about, in the same order, or their\n"
     "                        folder; of one file of scores all of them\n"
     "  --top 5%              a share of all samples, or a number\n"
     "  --out .               the folder to write to\n"},
    {"selftest", selftest_gradients,
     "skein gradients selftest [launch flags]        do several ranks collect what one does? (a "
     "minute)\n",
     "  device=cpu            or cuda\n"}};

std::string usage() {
  std::string text;
  for (const auto& verb : kVerbs) text += verb.usage;
  for (const auto& verb : kVerbs) text += fmt::format("\n{}:\n{}", verb.name, verb.flags);
  return text + kAfter;
}

std::string usage_of(const Verb& verb) {
  return fmt::format("{}\n{}{}", verb.usage, verb.flags, kAfter);
}

}  // namespace

int run_gradients_command(Arguments arguments) {
  const bool is_for_help = asks_for_help(arguments);
  std::vector<std::string> names;
  for (const auto& verb : kVerbs) {
    names.emplace_back(verb.name);
    if (arguments.empty() || arguments[0] != verb.name) continue;
    if (!is_for_help) return verb.run(arguments.subspan(1));
    fmt::print("{}", usage_of(verb));
    return 0;
  }
  if (is_for_help) {
    fmt::print("{}", usage());
    return 0;
  }
  if (arguments.empty()) throw UserError(fmt::format("skein gradients needs a word:\n{}", usage()));
  throw UserError(fmt::format("skein gradients has no '{}'{} (`skein gradients --help` lists them)",
                              shown(arguments[0]), config::did_you_mean(arguments[0], names)));
}

std::vector<std::string> without_commas(const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  for (const auto& word : words) {
    std::error_code ignored;
    if (fs::exists(word, ignored)) {
      parts.push_back(word);
      continue;
    }
    std::istringstream text(word);
    for (std::string part; std::getline(text, part, ',');) {
      if (!part.empty()) parts.push_back(part);
    }
    if (word.empty()) parts.push_back(word);
  }
  return parts;
}

void refuse_loose_words(std::string_view verb, const std::vector<std::string>& words,
                        std::string_view lists) {
  if (words.empty()) return;
  throw UserError(
      fmt::format("skein gradients {}: '{}' belongs to no flag: {} take several words, every other "
                  "flag one (`skein gradients {} --help` lists them)",
                  verb, shown(words[0]), lists, verb));
}

void tell_overwritten(const std::vector<fs::path>& files) {
  std::vector<std::string> there;
  for (const auto& file : files) {
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) there.push_back(shown(file.string()));
  }
  if (!there.empty()) log_info("written over: {}", fmt::join(there, ", "));
}

}  // namespace skein::cli
