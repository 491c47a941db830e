// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/eval_model.h"

#include <algorithm>

#include "skein/checkpoint/reader.h"
#include "skein/train/place.h"

namespace skein::train {
namespace {

// The data set is the "evaluation file" of a run whose training data are never looked at.
data::LoaderOptions loader_options(const EvalOptions& options, const plan::HfConfig& architecture) {
  config::DataConfig data;
  const auto dimensions = architecture.dimensions();
  data.block_size =
      options.block_size > 0 ? options.block_size : std::min<int64_t>(dimensions.positions, 1024);
  data.dataloader_num_workers = 0;
  if (fs::is_directory(options.dataset)) {
    data.train_file_dir = data.validation_file_dir = options.dataset;
  } else {
    data.train_file = data.eval_file = options.dataset;
  }
  if (options.max_samples > 0) data.max_eval_samples = options.max_samples;
  config::ModelConfig model;
  model.model_name_or_path = options.model;
  return {.data = data,
          .model = model,
          .eval_batch = options.batch,
          .vocab_size = dimensions.vocabulary};
}

}  // namespace

Evaluation evaluate_model(const EvalOptions& options, World& world) {
  const auto architecture = plan::read_hf_config(options.model);
  const data::Loader loader(loader_options(options, architecture), world.group.rank(),
                            world.group.size());
  const auto model =
      model::build(architecture, {.dtype = working_dtype(options.dtype, world.device)});
  // A group of its own: each rank's model is whole, and nothing of it travels.
  parallel::Sharded sharded(model->table(), {.inference = true, .device = world.device},
                            comm::Group());
  auto slices = sharded.kept_slices();
  checkpoint::Reader(options.model)
      .load(slices, {.tied_head = architecture.dimensions().tied_head});
  const auto algorithm = algorithms::build(config::TrainingStage::kPretrain, *model);
  return evaluate(loader, *algorithm, sharded, world);
}

}  // namespace skein::train
