// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/players.h"

#include <utility>

#include "skein/algorithms/critic.h"
#include "skein/board/board.h"
#include "skein/config/online_values.h"
#include "skein/plan/finetune.h"
#include "skein/plan/online.h"
#include "skein/plan/rules.h"
#include "skein/plan/run_model.h"
#include "skein/train/check_once.h"
#include "skein/train/folder_model.h"

namespace skein::train {
namespace {

parallel::ShardOptions frozen_options(const Session& run) {
  const bool divides = plan::zero_stage(run.config.parallel.distributed_strategy) == 3;
  return {
      .stage = parallel::kStages[divides ? 3 : 0], .inference = true, .device = run.world.device};
}

ModelFiles files_of(const Critic& critic, const World& world) {
  ModelFiles files{.folder = "critic",
                   .tuning = plan::tuning_identity(critic.config, critic.architecture)};
  if (world.own_output) files.share = {world.output_rank(), world.output_size()};
  return files;
}

}  // namespace

std::unique_ptr<Critic> build_critic(const Session& run) {
  if (!config::has_critic(run.config)) return nullptr;
  auto critic = std::make_unique<Critic>();
  critic->config = plan::critic_config(run.config);
  const auto& config = critic->config;
  critic->architecture = plan::read_run_model(config);
  critic->model = build_model(config, run.batches, critic->architecture, run.dtype);
  critic->sharded = std::make_unique<parallel::Sharded>(
      critic->model->table(), shard_options(config, run.batches, run.world), run.world.group);
  critic->optimizer = build_optimizer(config, *critic->sharded);
  critic->loss = std::make_unique<algorithms::Critic>(*critic->model,
                                                      algorithms::critic_options_of(run.config));
  critic->state = std::make_unique<ModelState>(
      TrainedModel{critic->architecture, *critic->model, *critic->sharded, *critic->optimizer},
      files_of(*critic, run.world));
  critic->guard =
      std::make_unique<NanGuard>(config.optimizer.nan_policy, *critic->sharded, nullptr);
  critic->peak_rate = plan::peak_learning_rate(config, run.batches);
  return critic;
}

void load_critic(Critic& critic, const World& world) {
  const board::HostWork work("loading the critic");
  load_first_weights(*critic.state, critic.config, world);
}

std::unique_ptr<RewardModel> open_reward_model(const Session& run) {
  if (!plan::has_reward_model(run.config)) return nullptr;
  const board::HostWork work("loading the reward model");
  const auto folder = plan::reward_folder(run.config);
  auto opened = build_folder_model(folder, run.dtype, run.world.device);
  auto judge = std::make_unique<RewardModel>();
  judge->sharded = std::make_unique<parallel::Sharded>(opened.model->table(), frozen_options(run),
                                                       run.world.group);
  for (const auto& part : folder.parts()) check_once(part, run.world);
  opened.load(judge->sharded->slices_to_save(Access::kSet));
  judge->sharded->gather_loaded();
  judge->model = std::move(opened.model);
  if (run.config.reward.reward_retokenize) {
    judge->codec = text::open_codec(folder.tokenizer_folder());
  }
  return judge;
}

}  // namespace skein::train
