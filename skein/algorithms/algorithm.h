// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Turns a batch into a loss, and into named numbers about it. One file pair per algorithm.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "skein/algorithms/metrics.h"
#include "skein/algorithms/options.h"
#include "skein/model/model.h"
#include "skein/tensor/batch.h"
#include "skein/tensor/units.h"

namespace skein::algorithms {

// Who looks at a batch before the step, without gradients, and at which batch.
enum class Role { kPolicy, kReference };
enum class Rows {
  kOwn,
  kMismatched,  // the same prompts with answers to others (data::FeedbackSource)
};
struct Pass {
  Role role = Role::kReference;
  Rows rows = Rows::kOwn;
};

// What runs a pass.
struct Runner {
  const model::Model& model;
  tensor::Units& units;
  tensor::StepKey key{.training = false};
};

// What a micro-batch is told of its step.
struct StepView {
  tensor::StepKey key{};
  // Of every term of the loss. In training the power of two near 1 over the step's normaliser
  // (train::Normaliser), times the scale of float16.
  double weight = 1;
  tensor::Counts counts{};               // of the whole step: all micro-batches, all ranks
  std::span<const at::Tensor> looks{};   // of this micro-batch: what each of passes() has given
  std::span<const double> statistics{};  // what settle() has given
};

// A micro-batch's part of its step.
struct Part {
  at::Tensor loss;         // a float64 scalar, from which backward starts
  MetricValues metrics{};  // a number for each of Algorithm::metrics()
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // What divides the sum over a step: targets, pairs, a constant. The loss is then one mean over
  // all micro-batches on all ranks, however the step is split.
  virtual int64_t normaliser(const tensor::Counts& counts) const = 0;
  // The names do not change. Beside the loss.
  virtual std::span<const Metric> metrics() const { return {}; }
  // Is the loss the mean of -log p over tokens? Then exp(loss) is the perplexity.
  virtual bool is_token_mean() const { return false; }

  // What is looked at before the update, over all micro-batches.
  virtual std::span<const Pass> passes() const { return {}; }
  // A pass over one micro-batch -> (A) float64, a number for each answer.
  virtual at::Tensor look(const tensor::Batch& batch, const Runner& runner) const;
  // Whether numbers that span the step follow from what was looked at; then settle() makes them of
  // the sum of every pass over all micro-batches on all ranks.
  virtual bool spans_step() const { return false; }
  virtual std::vector<double> settle(std::span<const double> sums,
                                     const tensor::Counts& counts) const;

  // The sum over the batch, each term times step.weight. A term that is to be divided by another
  // number M than normaliser() carries the factor normaliser / M: step.counts knows both.
  virtual Part loss_sum(const tensor::Batch& batch, const StepView& step,
                        tensor::Units& units) const = 0;
};

// `model` must outlive the algorithm.
std::unique_ptr<Algorithm> build(const Options& options, const model::Model& model);

}  // namespace skein::algorithms
