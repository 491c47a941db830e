// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/eval_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/cli/flag_set.h"
#include "skein/cli/model_folder.h"
#include "skein/core/error.h"
#include "skein/data/rows/row.h"
#include "skein/data/rows/row_reader.h"
#include "skein/data/source_files.h"
#include "skein/plan/byte_text.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/run_data.h"

namespace skein::cli {
namespace {

// Whether the data set's first row is more than a text. What cannot be read is for check_eval().
bool holds_rows(const std::string& dataset) try {
  if (fs::path(dataset).extension() == ".json") return true;
  const auto sources = data::find_files("--dataset", dataset);
  if (sources.files.empty() || !data::is_row_file(sources.files[0])) return false;
  data::RawRow first;
  data::RowReader reader(sources.files[0]);
  return reader.next(first) && data::parse_row(first.json).kind != data::Row::Kind::kText;
} catch (const UserError&) {
  return false;
} catch (const IoError&) {
  return false;
}

// Of blocks: what the model knows positions for, at most 1,024; of rows all of them.
int64_t longest_sample(const config::RunConfig& run) {
  const auto positions = plan::read_hf_config(run.model.model_name_or_path).dimensions().positions;
  return plan::trains_on_rows(run) ? positions : std::min<int64_t>(positions, 1024);
}

}  // namespace

EvalFlags parse_eval_flags(std::span<const std::string> arguments) {
  EvalFlags result;
  std::string dataset, adapter, base;
  int64_t max_samples = 0;
  auto& data = result.run.data;
  auto& rows = result.run.rows;
  data.block_size = 0;
  data.dataloader_num_workers = 0;
  FlagSet flags("skein eval");
  flags.add("dataset", dataset);
  flags.add("adapter", adapter);
  flags.add("base", base);
  flags.add("block-size", data.block_size);
  flags.add("cutoff-len", data.block_size);
  flags.add("template", rows.chat_format);
  flags.add("chat-template", rows.chat_template);
  flags.add("train-on-prompt", rows.train_on_prompt);
  flags.add("mask-history", rows.mask_history);
  flags.add("batch-size", result.batch_size, /*least=*/1);
  flags.add("max-samples", max_samples);
  flags.add("bad-lines", data.bad_lines);
  flags.add("data-cache-dir", data.data_cache_dir);
  flags.add("tokenizer", result.run.model.tokenizer_name_or_path);
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
  result.run.eval.eval_strategy = config::EvalStrategy::kSteps;
  const auto folder = open_model_folder({words.front(), adapter, base});
  result.run.model.model_name_or_path = folder.weights.string();
  result.adapter = folder.adapter.string();
  auto& tokenizer = result.run.model.tokenizer_name_or_path;
  if (tokenizer.empty() && folder.folder_of("tokenizer.json") != folder.weights) {
    tokenizer = folder.adapter.string();
  }
  if (holds_rows(dataset)) result.run.stage = config::TrainingStage::kSft;
  if (data.block_size == 0) data.block_size = longest_sample(result.run);
  return result;
}

void check_eval(const EvalFlags& flags) {
  const auto& run = flags.run;
  if (plan::trains_on_rows(run)) {
    data::find_row_files("--dataset", run.data.eval_file);
    data::open_row_tokens(run.model, run.rows);
    return;
  }
  const auto sources = data::find_files("--dataset", run.data.eval_file);
  if (!sources.holds_text()) return;
  try {
    plan::check_byte_text(run.model);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{} (here: --tokenizer FOLDER|bytes)", error.what()));
  }
}

}  // namespace skein::cli
