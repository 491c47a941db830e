// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What an online run has beside a session: prompts, a sampler, a judge, perhaps a critic.

#include <memory>
#include <optional>
#include <vector>

#include "skein/data/rows/prompt_source.h"
#include "skein/plan/steps/rollout_plan.h"
#include "skein/text/text_codec.h"
#include "skein/train/online/completion_log.h"
#include "skein/train/online/deal.h"
#include "skein/train/online/experience.h"
#include "skein/train/online/judge.h"
#include "skein/train/online/players.h"
#include "skein/train/online/replies.h"
#include "skein/train/online/sample.h"
#include "skein/train/session.h"

namespace skein::train {

struct OnlineRun {
  // Collective. `session` must outlive it.
  explicit OnlineRun(Session& session);

  // Judges completions and lets those that are replied to go on, with the wish that they were
  // sampled by. Nothing when the ranks are asked to stop. Collective.
  std::optional<Verdict> judge_all(const Prompts& prompts, std::vector<Sampled>& samples,
                                   const PolicySampler::Wish& wish);
  // How a step with so many prompts is dealt.
  Deal deal_of(int64_t prompts) const;

  Session& run;
  plan::RolloutPlan plan;
  const data::PromptSource& prompts;
  std::unique_ptr<text::TextCodec> codec;
  std::unique_ptr<Critic> critic;  // of ppo; else null
  PolicySampler sampler;
  Replies replies;
  Judge judge;
  ExperienceMaker maker;
  CompletionLog completions;
};

// As begin(Session&), for all models. Collective.
int64_t begin(OnlineRun& online);

}  // namespace skein::train
