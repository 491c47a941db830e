// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Everything that a run is made of, built in order. The loop takes it from there.

#include <memory>
#include <optional>

#include "skein/algorithms/algorithm.h"
#include "skein/checkpoint/store.h"
#include "skein/config/batch_plan.h"
#include "skein/config/load.h"
#include "skein/data/loader.h"
#include "skein/model/model.h"
#include "skein/optim/optimizer.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/continuation.h"
#include "skein/plan/rates/loss_scaler.h"
#include "skein/plan/steps/run_plan.h"
#include "skein/train/beginning.h"
#include "skein/train/metric_log.h"
#include "skein/train/nan_guard.h"
#include "skein/train/onlookers.h"
#include "skein/train/reference.h"
#include "skein/train/run_state.h"
#include "skein/train/world.h"

namespace skein::train {

struct Session {
  // Collective. The arguments must outlive it. Throws UserError or IoError for what cannot run,
  // before anything of the model's size is allocated.
  Session(const config::Resolved& resolved, const config::BatchPlan& batches, World& world);

  const config::Resolved& resolved;
  const config::RunConfig& config;
  const config::BatchPlan& batches;
  World& world;

  // What can be refused …
  fs::path output;
  plan::HfConfig architecture;
  DType dtype;  // of the weights in forward, the same on all ranks
  data::RunSamples samples;
  data::Loader loader;  // of an online stage every rank's has all prompts of a step
  plan::RunPlan plan;
  plan::DataIdentity identity;
  Beginning beginning;

  // … and what is allocated then.
  std::unique_ptr<model::Model> model;  // single-device code
  parallel::Sharded sharded;            // ddp, zero1, zero2 or zero3
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Reference> reference;              // what the model is compared with, or null
  std::unique_ptr<algorithms::Algorithm> algorithm;  // turns a batch into a loss
  std::unique_ptr<Onlookers> onlookers;              // who sees a batch before
  std::unique_ptr<plan::LossScaler> scaler;          // of float16; else null
  MetricLog metrics;
  checkpoint::CheckpointStore store;
  RunState state;
  double peak_rate = 0;  // learning_rate after lr_scaling
};

// How a session builds its parts; verify_strategy.cpp builds them several times over.
DType agreed_dtype(const config::ModelConfig& model, World& world);  // collective
data::LoaderOptions loader_options(const config::RunConfig& config,
                                   const config::BatchPlan& batches);
std::unique_ptr<model::Model> build_model(const config::RunConfig& config,
                                          const config::BatchPlan& batches,
                                          const plan::HfConfig& architecture, DType dtype);
parallel::ShardOptions shard_options(const config::RunConfig& config,
                                     const config::BatchPlan& batches, const World& world);
std::unique_ptr<optim::Optimizer> build_optimizer(const config::RunConfig& config,
                                                  parallel::Sharded& sharded);
std::unique_ptr<algorithms::Algorithm> build_algorithm(const config::RunConfig& config,
                                                       const model::Model& model);
std::unique_ptr<plan::LossScaler> make_scaler(const config::RunConfig& config, DType dtype);
// What a model begins with, of a run without a checkpoint. Collective.
void load_first_weights(ModelState& model, const config::RunConfig& config, const World& world);

// First weights, or those of the checkpoint to continue; then the banner. Returns the number of
// finished steps. Collective.
int64_t begin(Session& run);

// Call it before weights or moments change: what a save is still copying is copied first.
void before_update(Session& run);

// Weights and moments of the newest checkpoint up to `step`; steps and data go on. Collective.
void roll_back(Session& run, int64_t step);

// Looks at the update that `guard` watches, and goes back when it must. Collective. What it returns
// is for the sums of that update's loss: one that counts after all (NanVerdict).
std::optional<Update> judge_update(Session& run, NanGuard& guard, int64_t step);
// The same; the run's records get that loss.
void judge_and_log(Session& run, NanGuard& guard, int64_t step);

// Waits for the save under way. Was the last one committed, on all nodes? (True when there was
// none.) Collective.
bool settle_save(Session& run);
// The same; and an evaluation whose checkpoint is not there is not the best. Collective.
void settle_best(Session& run);

// The weights of the best evaluation, if its checkpoint is here. Collective.
void take_best(Session& run);

}  // namespace skein::train
