// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From completions and what they are worth to what updates learn from: log-probabilities, values,
// advantages.
//
// Whatever spans completions (groups, whitening, the KL controller) follows from numbers of all
// ranks in the order of the completions, so that no split changes it.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "skein/algorithms/advantages.h"
#include "skein/algorithms/metrics.h"
#include "skein/plan/steps/rollout_plan.h"
#include "skein/tensor/batch.h"
#include "skein/train/online/deal.h"
#include "skein/train/online/outcomes.h"
#include "skein/train/online/players.h"
#include "skein/train/session.h"

namespace skein::train {

// What one update learns from.
struct MiniBatch {
  std::vector<tensor::Batch> batches;  // this rank's micro-batches
  tensor::Counts counts;               // of all ranks
};

struct Experience {
  std::vector<MiniBatch> mini_batches;
  std::vector<double> advantages;    // of each of this rank's completions: the mean of its tokens
  std::vector<int64_t> lengths;      // of all completions with their prompts, on all ranks
  algorithms::NamedNumbers numbers;  // of the step, alike on all ranks
};

class ExperienceMaker {
 public:
  // All must outlive it; `critic` may be null.
  ExperienceMaker(Session& run, Critic* critic);

  // What it is made of.
  struct Material {
    const Prompts& prompts;
    std::span<const Sampled> samples;
    const Outcomes& outcomes;
  };
  // Collective: looks with the policy, the reference and the critic.
  Experience make(const Deal& deal, const Material& material);

  // What goes on from step to step: the coefficient of KL, the rewards seen so far.
  std::map<std::string, double> state() const;
  void restore(const std::map<std::string, double>& state);

 private:
  // Of this rank's targets, completion by completion. Empty: nobody was asked.
  struct Told {
    std::vector<double> log_probs, reference, values;
  };
  struct Step;

  bool has_kl_in_rewards() const;
  bool asks_policy() const;
  std::vector<MiniBatch> mini_batches(const Deal& deal, const Material& material,
                                      const std::vector<double>& weights,
                                      const std::vector<bool>& filtered) const;
  Told look(const std::vector<MiniBatch>& mini_batches);
  std::vector<double> scores_of(const Outcomes& outcomes);
  // Of tokens: advantages, and of a critic's returns.
  algorithms::Gae estimate(const Step& step, std::vector<double> scores);
  void add_explained(const Step& step, const std::vector<double>& returns,
                     algorithms::NamedNumbers& numbers);
  static void tell(std::vector<MiniBatch>& mini_batches, const algorithms::Gae& estimate,
                   const Told& told);

  Session& run_;
  Critic* critic_;
  plan::RolloutPlan plan_;
  bool shares_;  // completions of one prompt compute it once
  algorithms::KlController kl_;
  algorithms::ScoreNormaliser normaliser_;
};

}  // namespace skein::train
