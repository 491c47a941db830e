// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/merge.h"

#include <fmt/format.h>

#include "skein/cli/commands.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/shard_size.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/text/tokenizer.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein merge ADAPTER [--base DIR] --out DIR   an adapter and its base become a model\n"
    "\n"
    "  --base DIR              the base, if not where adapter_config.json says\n"
    "  --out DIR               a new folder\n"
    "  --overwrite             also where DIR holds a model: it is replaced as a whole\n"
    "  --max-shard-size 50GB   larger models are split into files of this size\n"
    "\n"
    "ADAPTER is a folder as PEFT writes it: adapter_config.json and adapter_model.safetensors.\n"
    "Weights are formed in float32 and rounded once to the base's type; `skein export --dtype`\n"
    "makes another one of it. docs/adapters.md.\n";

// A token without a row makes programs that compute with the model end, or answer nonsense.
void warn_of_tokens_without_rows(const plan::ModelFolder& model, uint64_t rows) {
  const auto folder = model.tokenizer_folder();
  if (rows == 0 || !fs::exists(folder / "tokenizer.json")) return;
  uint64_t ids = 0;
  try {
    ids = static_cast<uint64_t>(text::Tokenizer::load(folder).vocab_size());
  } catch (const UserError&) {
    return;  // of a kind that we do not read
  }
  if (ids <= rows) return;
  log_warning(
      "{} has {} ids, and the embedding {} rows: ids from {} on have none. Rows that the adapter "
      "was trained with are saved by modules_to_save=embed_tokens,lm_head, or belong to the base",
      (folder / "tokenizer.json").string(), ids, rows, rows);
}

}  // namespace

int run_merge_command(Arguments arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  convert::MergeOptions options;
  std::string base, out;
  FlagSet flags("skein merge");
  flags.add("base", base);
  flags.add("out", out);
  flags.add("overwrite", options.overwrite);
  add_shard_size(flags, options.max_shard_bytes);
  flags.add_foreign("dtype",
                    "weights keep the base's type; `skein export DIR --out DIR2 --dtype bfloat16` "
                    "changes it afterwards");
  const auto words = flags.read(arguments);
  if (words.size() != 1) throw UserError(fmt::format("skein merge takes one adapter:\n{}", kUsage));
  if (out.empty()) throw UserError("skein merge: --out DIR is missing: where shall the model go?");
  options.model = plan::open_adapter(words[0], base);
  options.out = out;
  const auto summary = convert::merge_adapter(options);
  if (summary.untied_head) {
    log_info(
        "the head was the embedding in the base; the adapter changes them differently, so it has "
        "a tensor of its own now (tie_word_embeddings: false)");
  }
  warn_of_tokens_without_rows(options.model, summary.num_rows);
  log_info("{}: {} with {} adapted and {} replaced, {} in {}", out, options.model.weights.string(),
           counted(summary.num_adapted, "weight"), counted(summary.num_replaced, "tensor"),
           shown_bytes(summary.bytes), counted(summary.num_files, "file"));
  return 0;
}

}  // namespace skein::cli
