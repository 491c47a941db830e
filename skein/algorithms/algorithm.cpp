// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/algorithms/algorithm.h"

#include "skein/algorithms/critic.h"
#include "skein/algorithms/feedback.h"
#include "skein/algorithms/policy_gradient.h"
#include "skein/algorithms/preference.h"
#include "skein/algorithms/pretrain.h"
#include "skein/algorithms/reward.h"
#include "skein/core/error.h"

namespace skein::algorithms {
namespace {

// One for each of the options.
struct Builder {
  const model::Model& model;

  std::unique_ptr<Algorithm> operator()(const PretrainOptions& options) const {
    return std::make_unique<Pretrain>(model, options);
  }
  std::unique_ptr<Algorithm> operator()(const RewardOptions& options) const {
    return std::make_unique<Reward>(model, options);
  }
  std::unique_ptr<Algorithm> operator()(const PreferenceOptions& options) const {
    return std::make_unique<Preference>(model, options);
  }
  std::unique_ptr<Algorithm> operator()(const FeedbackOptions& options) const {
    return std::make_unique<Feedback>(model, options);
  }
  std::unique_ptr<Algorithm> operator()(const PolicyGradientOptions& options) const {
    return std::make_unique<PolicyGradient>(model, options);
  }
  std::unique_ptr<Algorithm> operator()(const CriticOptions& options) const {
    return std::make_unique<Critic>(model, options);
  }
};

}  // namespace

at::Tensor Algorithm::look(const tensor::Batch&, const Runner&) const {
  throw InternalError("an algorithm without passes looks at nothing");
}

std::vector<double> Algorithm::settle(std::span<const double>, const tensor::Counts&) const {
  throw InternalError("nothing spans the steps of this algorithm");
}

std::unique_ptr<Algorithm> build(const Options& options, const model::Model& model) {
  return std::visit(Builder{model}, options);
}

}  // namespace skein::algorithms
