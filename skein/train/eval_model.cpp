// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/eval_model.h"

#include "skein/checkpoint/reader.h"
#include "skein/core/progress.h"
#include "skein/plan/run_data.h"
#include "skein/train/place.h"

namespace skein::train {
Evaluation evaluate_model(const EvalOptions& options, World& world) {
  const auto& folder = options.run.model.model_name_or_path;
  const auto architecture = plan::read_hf_config(folder);
  const data::Loader loader(plan::open_samples(options.run, architecture.dimensions().vocabulary),
                            {.data = options.run.data, .eval_batch = options.batch},
                            world.group.rank(), world.group.size());
  const auto model =
      model::build(architecture, {.dtype = working_dtype(options.dtype, world.device)});
  // A group of its own: each rank's model is whole, and nothing of it travels.
  parallel::Sharded sharded(model->table(), {.inference = true, .device = world.device},
                            comm::Group());
  auto slices = sharded.kept_slices();
  checkpoint::Reader(folder).load(slices, {.tied_head = architecture.dimensions().tied_head});
  const auto algorithm = algorithms::build(options.run.stage, *model);
  if (!world.is_first()) return evaluate(loader, *algorithm, sharded, world);
  Progress progress("evaluating", static_cast<uint64_t>(loader.num_eval_batches()), "batches");
  return evaluate(loader, *algorithm, sharded, world, [&] { progress.add(1); });
}

}  // namespace skein::train
