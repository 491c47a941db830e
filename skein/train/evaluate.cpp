// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/evaluate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "skein/board/board.h"

namespace skein::train {
namespace {

// `goes_on` is asked after every batch: whether it is worth going on.
using GoesOn = std::function<bool()>;

// What onlookers see of each batch, all before any loss: numbers that span the evaluation follow
// from them. Nothing when the ranks agree to stop.
std::optional<std::vector<Onlookers::Looks>> look_at_all(const Evaluator& evaluator,
                                                         const World& world,
                                                         const GoesOn& goes_on) {
  std::vector<Onlookers::Looks> looks;
  const auto& loader = evaluator.loader;
  const auto* onlookers = evaluator.onlookers;
  if (onlookers == nullptr || !onlookers->any()) return looks;
  bool stopped = false;
  onlookers->while_held([&] {
    for (int64_t k = 0; k < loader.num_eval_batches() && !stopped; ++k) {
      board::report_progress(fmt::format("looking at evaluation batch {}", k + 1));
      const auto own = tensor::to_device(loader.eval_batch(k), world.device);
      const auto other = loader.eval_mismatched(k);
      const auto mismatched = other ? tensor::to_device(*other, world.device) : tensor::Batch();
      looks.push_back(onlookers->look(data::Split::kEval, own, other ? &mismatched : nullptr));
      stopped = !goes_on();
    }
  });
  if (stopped) return std::nullopt;
  return looks;
}

std::optional<Evaluation> evaluate_while(const Evaluator& evaluator, World& world,
                                         const GoesOn& goes_on) {
  const auto& [loader, algorithm, sharded, onlookers] = evaluator;
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const auto counts = loader.eval_counts();
  const auto looks = look_at_all(evaluator, world, goes_on);
  if (!looks) return std::nullopt;
  const auto statistics =
      looks->empty() ? std::vector<double>() : onlookers->settle(*looks, counts);
  auto loss = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(world.device));
  algorithms::MetricSums metrics(algorithm.metrics());
  const auto roots = sharded.hold_roots();
  for (int64_t k = 0; k < loader.num_eval_batches(); ++k) {
    board::report_progress(fmt::format("evaluation batch {}", k + 1));
    const auto batch = tensor::to_device(loader.eval_batch(k), world.device);
    algorithms::StepView view{
        .key = {.training = false}, .counts = counts, .statistics = statistics};
    if (!looks->empty()) view.looks = (*looks)[static_cast<size_t>(k)];
    const auto part = algorithm.loss_sum(batch, view, sharded);
    loss += part.loss;
    metrics.add(part.metrics);
    if (!goes_on()) return std::nullopt;
  }
  board::report_progress("");
  auto share = metrics.share(world.group.rank(), world.group.size());
  share.push_back(loss.item<double>());
  auto sum = world.group.sum(share);
  const double mean = sum.back() / static_cast<double>(algorithm.normaliser(counts));
  sum.pop_back();
  return Evaluation{
      .loss = mean,
      .num_targets = counts.targets,
      .num_samples = loader.num_eval_samples(),
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      .perplexity = algorithm.is_token_mean() ? std::optional(std::exp(mean)) : std::nullopt,
      .metrics = metrics.numbers(sum, world.group.size())};
}

}  // namespace

std::optional<Evaluation> evaluate(const Evaluator& evaluator, World& world, StopAgreement& stop) {
  return evaluate_while(evaluator, world, [&] {
    stop.ask(world.stop_requested());
    return !stop.answer();
  });
}

Evaluation evaluate(const Evaluator& evaluator, World& world,
                    const std::function<void()>& on_batch) {
  return *evaluate_while(evaluator, world, [&] {
    if (on_batch) on_batch();
    return true;
  });
}

double metric_of(const Evaluation& evaluation, const std::string& name) {
  if (name == "loss" && evaluation.loss) return *evaluation.loss;
  if (name == "perplexity" && evaluation.perplexity) return *evaluation.perplexity;
  for (const auto& [metric, value] : evaluation.metrics) {
    if (metric == name) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace skein::train
