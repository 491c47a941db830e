// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/refusals.h"

#include <fmt/format.h>

#include "skein/checkpoint/catalog.h"
#include "skein/checkpoint/model_files.h"
#include "skein/config/output_folder.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/data/source_files.h"
#include "skein/plan/hf_config.h"

namespace skein::plan {
namespace {

// Rotary positions have no last one; learned ones do.
void check_block_size(const Dimensions& model, int64_t block_size) {
  if (!model.positions_are_learned || block_size <= model.positions) return;
  throw UserError(
      fmt::format("block_size is {}, but the model knows {} positions: lower block_size",
                  block_size, model.positions));
}

// A run that continues takes its weights from a checkpoint.
bool may_continue(const config::CheckpointConfig& checkpoint) {
  const auto& wish = checkpoint.resume_from_checkpoint;
  if (wish != "auto") return wish != "false";
  const auto output = config::output_folder(checkpoint);
  std::error_code ignored;
  return !checkpoint.fresh && fs::is_directory(output, ignored) &&
         !checkpoint::list_checkpoints(output).empty();
}

void check_weights(const config::RunConfig& config) {
  if (config.model.train_from_scratch || may_continue(config.checkpoint)) return;
  checkpoint::open_model_files(config.model.model_name_or_path);
}

}  // namespace

void check_given(const config::RunConfig& config) {
  const auto need = [](bool given, const char* what) {
    if (!given) throw UserError(fmt::format("skein train needs {}", what));
  };
  need(!config.model.model_name_or_path.empty(),
       "model_name_or_path=FOLDER, the folder with the model's config.json");
  need(!config.data.train_file.empty() || !config.data.train_file_dir.empty(),
       "train_file=FILE (or train_file_dir=FOLDER), the text to train on");
  need(!config::output_folder(config.checkpoint).empty(),
       "output_dir=FOLDER (or experiment_name=NAME), where to save");
}

void check_run(const config::RunConfig& config) {
  if (!config.model.model_name_or_path.empty()) {
    const auto model = read_hf_config(config.model.model_name_or_path);
    check_block_size(model.dimensions(), config.data.block_size);
    check_weights(config);
  }
  for (const auto split : {data::Split::kTrain, data::Split::kEval}) {
    data::find_sources(config.data, split);
  }
}

std::vector<std::string> run_warnings(const config::RunConfig& config, const Place& place) {
  std::vector<std::string> warnings;
  if (place.on_gpus() && !place.has_bfloat16 && config.model.dtype == DType::kBF16) {
    warnings.emplace_back(
        "dtype=bfloat16: a GPU of this run has no bfloat16 arithmetic and will emulate it; "
        "dtype=float32 is faster there");
  }
  if (!config.model.model_name_or_path.empty()) {
    const auto model = read_hf_config(config.model.model_name_or_path);
    if (auto advice = model.architecture->training_advice(); !advice.empty()) {
      warnings.push_back(std::move(advice));
    }
  }
  return warnings;
}

}  // namespace skein::plan
