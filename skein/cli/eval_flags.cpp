// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/eval_flags.h"

#include <fmt/format.h>

#include "skein/cli/flag_set.h"
#include "skein/cli/model_folder.h"
#include "skein/core/error.h"
#include "skein/data/source_files.h"
#include "skein/plan/byte_text.h"

namespace skein::cli {

EvalFlags parse_eval_flags(std::span<const std::string> arguments) {
  EvalFlags result;
  std::string dataset, adapter, base;
  int64_t max_samples = 0;
  auto& data = result.data;
  data.block_size = 0;
  data.dataloader_num_workers = 0;
  FlagSet flags("skein eval");
  flags.add("dataset", dataset);
  flags.add("adapter", adapter);
  flags.add("base", base);
  flags.add("block-size", data.block_size);
  flags.add("batch-size", result.batch_size, /*least=*/1);
  flags.add("max-samples", max_samples);
  flags.add("bad-lines", data.bad_lines);
  flags.add("data-cache-dir", data.data_cache_dir);
  flags.add("tokenizer", result.model.tokenizer_name_or_path);
  flags.add("dtype", result.dtype);
  flags.add("device", result.device);
  flags.add("json", result.json);
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(fmt::format("skein eval takes one MODEL folder, not {} (`skein eval --help`)",
                                words.size()));
  }
  if (dataset.empty()) throw UserError("skein eval needs --dataset FILE");
  data.train_file = data.eval_file = dataset;
  if (max_samples > 0) data.max_eval_samples = max_samples;
  const auto folder = open_model_folder({words.front(), adapter, base});
  result.model.model_name_or_path = folder.weights.string();
  result.adapter = folder.adapter.string();
  auto& tokenizer = result.model.tokenizer_name_or_path;
  if (tokenizer.empty() && folder.folder_of("tokenizer.json") != folder.weights) {
    tokenizer = folder.adapter.string();
  }
  return result;
}

void check_eval(const EvalFlags& flags) {
  const auto sources = data::find_files("--dataset", flags.data.eval_file);
  if (!sources.holds_text()) return;
  try {
    plan::check_byte_text(flags.model);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{} (here: --tokenizer FOLDER|bytes)", error.what()));
  }
}

}  // namespace skein::cli
