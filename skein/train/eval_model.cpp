// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/eval_model.h"

#include "skein/core/progress.h"
#include "skein/plan/run_data.h"
#include "skein/train/check_once.h"
#include "skein/train/folder_model.h"

namespace skein::train {

Evaluation evaluate_model(const EvalOptions& options, World& world) {
  const auto opened = build_folder_model(options.model, options.dtype, world.device);
  const data::Loader loader(plan::open_eval_samples(options.run, opened.config),
                            {.data = options.run.data, .eval_batch = options.batch},
                            world.group.rank(), world.group.size());
  for (const auto& part : options.model.parts()) check_once(part, world);
  // A group of its own: each rank's model is whole, and nothing of it travels.
  parallel::Sharded sharded(opened.model->table(), {.inference = true, .device = world.device},
                            comm::Group());
  opened.load(sharded.kept_slices(Access::kSet));
  const auto algorithm = algorithms::build(algorithms::options_of(options.run), *opened.model);
  const Evaluator evaluator{loader, *algorithm, sharded};
  if (!world.is_first()) return evaluate(evaluator, world);
  Progress progress("evaluating", static_cast<uint64_t>(loader.num_eval_batches()), "batches");
  return evaluate(evaluator, world, [&] { progress.add(1); });
}

}  // namespace skein::train
