// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The models beside the policy and its reference: the critic of ppo, which trains too and has a
// folder of its own in every checkpoint, and the frozen model that judges completions.

#include <memory>

#include "skein/algorithms/algorithm.h"
#include "skein/config/run_config.h"
#include "skein/model/model.h"
#include "skein/optim/optimizer.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/hf_config.h"
#include "skein/text/text_codec.h"
#include "skein/train/model_state.h"
#include "skein/train/nan_guard.h"
#include "skein/train/session.h"

namespace skein::train {

struct Critic {
  config::RunConfig config;  // as of a run of its own
  plan::HfConfig architecture;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<parallel::Sharded> sharded;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<algorithms::Algorithm> loss;
  std::unique_ptr<ModelState> state;
  std::unique_ptr<NanGuard> guard;
  double peak_rate = 0;
};

struct RewardModel {
  std::unique_ptr<model::Model> model;
  std::unique_ptr<parallel::Sharded> sharded;  // whole on every rank, or its shard under zero3
  std::unique_ptr<text::TextCodec> codec;      // null: it reads the policy's tokens
};

// Null where the stage has none. Collective. What is built first has no weights: a run that goes on
// reads the critic's from its checkpoint.
std::unique_ptr<Critic> build_critic(const Session& run);
// What it begins with; of an adapter also what stays as it is, so that a run that goes on asks too.
void load_critic(Critic& critic, const World& world);
// With its weights.
std::unique_ptr<RewardModel> open_reward_model(const Session& run);

}  // namespace skein::train
