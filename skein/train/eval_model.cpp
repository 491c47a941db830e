// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/eval_model.h"

#include "skein/core/progress.h"
#include "skein/plan/run_data.h"
#include "skein/train/check_once.h"
#include "skein/train/place.h"
#include "skein/train/weights.h"

namespace skein::train {
Evaluation evaluate_model(const EvalOptions& options, World& world) {
  const auto& folder = options.run.model.model_name_or_path;
  const auto architecture = plan::read_hf_config(folder);
  const data::Loader loader(
      plan::open_eval_samples(options.run, architecture.dimensions().vocabulary),
      {.data = options.run.data, .eval_batch = options.batch}, world.group.rank(),
      world.group.size());
  model::BuildOptions build{.dtype = working_dtype(options.dtype, world.device)};
  if (!options.adapter.empty()) {
    build.tuning.lora = adapter_to_use(options.adapter);
  }
  check_once(folder, world);
  if (!options.adapter.empty()) check_once(options.adapter, world);
  const auto model = model::build(architecture, build);
  // A group of its own: each rank's model is whole, and nothing of it travels.
  parallel::Sharded sharded(model->table(), {.inference = true, .device = world.device},
                            comm::Group());
  const auto& table = model->table();
  BaseWeights(folder, architecture, table).load(sharded.kept_slices());
  if (!options.adapter.empty()) load_adapter(options.adapter, table, sharded.kept_slices());
  const auto algorithm = algorithms::build(options.run.stage, *model);
  if (!world.is_first()) return evaluate(loader, *algorithm, sharded, world);
  Progress progress("evaluating", static_cast<uint64_t>(loader.num_eval_batches()), "batches");
  return evaluate(loader, *algorithm, sharded, world, [&] { progress.add(1); });
}

}  // namespace skein::train
