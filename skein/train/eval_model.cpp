// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/eval_model.h"

#include <algorithm>

#include "skein/adapter/adapter_config.h"
#include "skein/core/progress.h"
#include "skein/train/place.h"
#include "skein/train/weights.h"

namespace skein::train {
namespace {

data::LoaderOptions loader_options(const EvalOptions& options, const plan::HfConfig& architecture) {
  auto data = options.data;
  const auto dimensions = architecture.dimensions();
  if (data.block_size == 0) data.block_size = std::min<int64_t>(dimensions.positions, 1024);
  return {.data = data,
          .model = options.model,
          .eval_batch = options.batch,
          .vocab_size = dimensions.vocabulary};
}

}  // namespace

Evaluation evaluate_model(const EvalOptions& options, World& world) {
  const auto architecture = plan::read_hf_config(options.model.model_name_or_path);
  const data::Loader loader(loader_options(options, architecture), world.group.rank(),
                            world.group.size());
  model::BuildOptions build{.dtype = working_dtype(options.dtype, world.device)};
  if (!options.adapter.empty()) {
    build.tuning.lora = adapter::read_adapter_config(options.adapter);
  }
  const auto model = model::build(architecture, build);
  // A group of its own: each rank's model is whole, and nothing of it travels.
  parallel::Sharded sharded(model->table(), {.inference = true, .device = world.device},
                            comm::Group());
  const auto& table = model->table();
  BaseWeights(options.model.model_name_or_path, architecture, table).load(sharded.kept_slices());
  if (!options.adapter.empty()) load_adapter(options.adapter, table, sharded.kept_slices());
  const auto algorithm = algorithms::build(config::TrainingStage::kPretrain, *model);
  if (!world.is_first()) return evaluate(loader, *algorithm, sharded, world);
  Progress progress("evaluating", static_cast<uint64_t>(loader.num_eval_batches()), "batches");
  return evaluate(loader, *algorithm, sharded, world, [&] { progress.add(1); });
}

}  // namespace skein::train
