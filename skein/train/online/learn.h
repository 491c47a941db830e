// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A step's updates: iterations over its mini-batches, of the policy and of the critic.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "skein/train/online/online_run.h"
#include "skein/train/online/sampling_gap.h"

namespace skein::train {

class Learner {
 public:
  // `online` must outlive it.
  explicit Learner(OnlineRun& online);

  // Makes step `step` (from 0) out of what was experienced. Collective.
  void learn(const Experience& experience, int64_t step, const std::vector<int64_t>& samples);
  // A record of the steps since the last one; `step` counts finished ones. Collective. Throws
  // UserError where the sampler is wrong (sampling_gap.h).
  void write(int64_t step, double epoch);

 private:
  void update_policy(const MiniBatch& mini_batch, int64_t step,
                     const std::vector<int64_t>& samples);
  void update_critic(const MiniBatch& mini_batch, int64_t step,
                     const std::vector<int64_t>& samples);
  void check_gap(const algorithms::NamedNumbers& numbers, int64_t step);
  bool policy_waits(int64_t step) const;
  algorithms::NamedNumbers take_critic();

  OnlineRun& online_;
  Session& run_;
  NanGuard guard_;
  SamplingGap gap_;
  // Since the last record.
  std::map<std::string, std::pair<double, int64_t>> numbers_;  // sums, and how many steps
  std::vector<std::string> names_;                             // in their order
  algorithms::MetricSums critic_metrics_;
  at::Tensor critic_loss_, critic_updates_;
  at::Tensor grad_norm_;  // of the last update; nobody waits for it before a record
  double learning_rate_ = 0;
};

}  // namespace skein::train
