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

#include "skein/board/board.h"

namespace skein::train {
namespace {

// `goes_on` is asked after every batch.
std::optional<Evaluation> evaluate_while(const data::Loader& loader,
                                         const algorithms::Algorithm& algorithm,
                                         parallel::Sharded& sharded, World& world,
                                         const std::function<bool()>& goes_on) {
  const at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const auto counts = loader.eval_counts();
  auto loss = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(world.device));
  algorithms::MetricSums metrics(algorithm.metrics());
  const auto roots = sharded.hold_roots();
  for (int64_t k = 0; k < loader.num_eval_batches(); ++k) {
    board::report_progress(fmt::format("evaluation batch {}", k + 1));
    const auto batch = tensor::to_device(loader.eval_batch(k), world.device);
    const auto part =
        algorithm.loss_sum(batch, {.key = {.training = false}, .counts = counts}, sharded);
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

std::optional<Evaluation> evaluate(const data::Loader& loader,
                                   const algorithms::Algorithm& algorithm,
                                   parallel::Sharded& sharded, World& world, StopAgreement& stop) {
  return evaluate_while(loader, algorithm, sharded, world, [&] {
    stop.ask(world.stop_requested());
    return !stop.answer();
  });
}

Evaluation evaluate(const data::Loader& loader, const algorithms::Algorithm& algorithm,
                    parallel::Sharded& sharded, World& world,
                    const std::function<void()>& on_batch) {
  return *evaluate_while(loader, algorithm, sharded, world, [&] {
    if (on_batch) on_batch();
    return true;
  });
}

}  // namespace skein::train
