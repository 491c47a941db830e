// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/evaluate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <chrono>
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
  auto loss = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(world.device));
  const auto roots = sharded.hold_roots();
  for (int64_t k = 0; k < loader.num_eval_batches(); ++k) {
    board::report_progress(fmt::format("evaluation batch {}", k + 1));
    const auto batch = tensor::to_device(loader.eval_batch(k), world.device);
    loss += algorithm.loss_sum(batch, {.training = false}, /*weight=*/1, sharded);
    if (!goes_on()) return std::nullopt;
  }
  board::report_progress("");
  const double sum = world.group.sum(loss.item<double>());
  return Evaluation{
      .loss = sum / static_cast<double>(loader.num_eval_targets()),
      .num_targets = loader.num_eval_targets(),
      .num_samples = loader.num_eval_samples(),
      .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
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
