// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The loss over the evaluation data: every sample once, on all ranks together.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "skein/algorithms/algorithm.h"
#include "skein/data/loader.h"
#include "skein/parallel/sharded.h"
#include "skein/train/onlookers.h"
#include "skein/train/stop_agreement.h"
#include "skein/train/world.h"

namespace skein::train {

struct Evaluation {
  std::optional<double> loss{};  // as training divides it; none: of answers that were sampled
  int64_t num_targets = 0;
  int64_t num_samples = 0;
  double seconds = 0;
  std::optional<double> perplexity{};  // of losses that are means over tokens
  algorithms::NamedNumbers metrics{};
};

// What is measured with what.
struct Evaluator {
  const data::Loader& loader;
  const algorithms::Algorithm& algorithm;
  parallel::Sharded& sharded;
  const Onlookers* onlookers = nullptr;  // null: the algorithm has no passes
};

// Collective. Nothing when the ranks agree to stop on the way: it is given up then.
std::optional<Evaluation> evaluate(const Evaluator& evaluator, World& world, StopAgreement& stop);
// The same to its end. Calls on_batch, where given, after each of loader.num_eval_batches().
Evaluation evaluate(const Evaluator& evaluator, World& world,
                    const std::function<void()>& on_batch = {});

// Of an evaluation, as metric_for_best_model names it: loss, perplexity, or one of its metrics. Not
// a number where it has none of that name.
double metric_of(const Evaluation& evaluation, const std::string& name);

}  // namespace skein::train
