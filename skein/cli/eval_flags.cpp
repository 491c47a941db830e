// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/eval_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/adapter/adapter_config.h"
#include "skein/cli/flag_set.h"
#include "skein/core/error.h"
#include "skein/data/rows/preview_rows.h"
#include "skein/plan/byte_text.h"
#include "skein/plan/hf_config.h"
#include "skein/plan/run_data.h"

namespace skein::cli {
namespace {

constexpr const char* kDataset = "--dataset";

// Whether the data set is rows. What is not there or not known is for check_eval().
bool holds_rows(const std::string& dataset) try {
  if (fs::path(dataset).extension() == ".json") return true;
  return data::hold_conversations(data::find_row_files(kDataset, dataset));
} catch (const UserError&) {
  return false;
}

bool scores(const plan::ModelFolder& model) {
  return plan::read_hf_config(model.weights).dimensions().scores ||
         (!model.adapter.empty() &&
          adapter::read_adapter_config(model.adapter).task_type == adapter::kScores);
}

config::TrainingStage stage_of(const std::string& asked, const plan::ModelFolder& model,
                               const std::string& dataset) {
  using config::TrainingStage;
  const bool is_rm = asked == "rm" || asked == "reward" || asked == "reward_model";
  if (scores(model)) {
    if (asked.empty() || is_rm) return TrainingStage::kReward;
    throw UserError(
        fmt::format("--stage {}: the model scores texts, and is measured as stage rm "
                    "trains it: leave --stage out",
                    asked));
  }
  if (is_rm) {
    throw UserError("--stage rm measures a reward model, and this one writes text");
  }
  if (asked.empty()) return holds_rows(dataset) ? TrainingStage::kSft : TrainingStage::kPretrain;
  if (asked == "sft") return TrainingStage::kSft;
  if (asked == "pt") return TrainingStage::kPretrain;
  throw UserError(fmt::format("--stage: '{}' is neither pt (text) nor sft (rows)", asked));
}

// Of blocks: what the model is made for, at most 1,024; of rows all of it.
int64_t longest_sample(const config::RunConfig& run) {
  const auto positions =
      plan::read_hf_config(run.model.model_name_or_path).dimensions().usable_positions();
  return plan::trains_on_rows(run) ? positions : std::min<int64_t>(positions, 1024);
}

}  // namespace

EvalFlags parse_eval_flags(std::span<const std::string> arguments) {
  EvalFlags result;
  std::string dataset, adapter, base, stage;
  int64_t max_samples = 0;
  auto& data = result.run.data;
  auto& rows = result.run.rows;
  data.block_size = 0;
  data.dataloader_num_workers = 0;
  FlagSet flags("skein eval");
  flags.add("dataset", dataset);
  flags.add("stage", stage);
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
  flags.add("tokenizer-name-or-path", result.run.model.tokenizer_name_or_path);
  flags.add("dtype", result.dtype);
  flags.add("device", result.device);
  flags.add("json", result.json);
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(fmt::format("skein eval takes one MODEL folder, not {} (`skein eval --help`)",
                                words.size()));
  }
  if (dataset.empty()) throw UserError("skein eval needs --dataset FILE");
  data.eval_file = dataset;
  if (max_samples > 0) data.max_eval_samples = max_samples;
  result.run.eval.eval_strategy = config::EvalStrategy::kSteps;
  result.model = plan::open_model_folder({words.front(), adapter, base});
  result.run.model.model_name_or_path = result.model.weights.string();
  auto& tokenizer = result.run.model.tokenizer_name_or_path;
  if (const auto newer = result.model.tokenizer_folder();
      tokenizer.empty() && newer != result.model.weights) {
    tokenizer = newer.string();
  }
  result.run.stage = stage_of(stage, result.model, dataset);
  if (data.block_size == 0) data.block_size = longest_sample(result.run);
  return result;
}

data::Sources eval_sources(const config::RunConfig& run) {
  return plan::trains_on_rows(run) ? data::find_row_files(kDataset, run.data.eval_file)
                                   : data::find_files(kDataset, run.data.eval_file);
}

void check_eval(const EvalFlags& flags) {
  const auto& run = flags.run;
  const auto sources = eval_sources(run);
  try {
    if (plan::trains_on_rows(run)) {
      plan::open_tokens(run);
    } else if (sources.holds_text()) {
      plan::check_byte_text(run.model);
    }
  } catch (const UserError& error) {
    const std::string why = error.what();
    const bool is_tokenizer = why.find("tokenizer_name_or_path") != std::string::npos;
    const char* flag = plan::trains_on_rows(run) ? "FOLDER" : "FOLDER|bytes";
    throw UserError(is_tokenizer ? fmt::format("{} (here: --tokenizer {})", why, flag) : why);
  }
}

}  // namespace skein::cli
