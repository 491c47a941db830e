// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/eval_model.h"

#include <algorithm>

#include "skein/checkpoint/reader.h"
#include "skein/core/progress.h"
#include "skein/train/place.h"

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
  const auto model =
      model::build(architecture, {.dtype = working_dtype(options.dtype, world.device)});
  // A group of its own: each rank's model is whole, and nothing of it travels.
  parallel::Sharded sharded(model->table(), {.inference = true, .device = world.device},
                            comm::Group());
  auto slices = sharded.kept_slices();
  checkpoint::Reader(options.model.model_name_or_path)
      .load(slices, {.tied_head = architecture.dimensions().tied_head});
  const auto algorithm = algorithms::build(config::TrainingStage::kPretrain, *model);
  if (!world.is_first()) return evaluate(loader, *algorithm, sharded, world);
  Progress progress("evaluating", static_cast<uint64_t>(loader.num_eval_batches()), "batches");
  return evaluate(loader, *algorithm, sharded, world, [&] { progress.add(1); });
}

}  // namespace skein::train
