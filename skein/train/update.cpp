// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/update.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <bit>

#include "skein/core/error.h"
#include "skein/plan/rates/schedule.h"
#include "skein/trace/trace.h"

namespace skein::train {
namespace {

// What onlookers have seen of each micro-batch.
struct Seen {
  std::vector<Onlookers::Looks> looks;
  std::vector<double> statistics;
};

Seen look_at(const Trainer& trainer, const StepData& data) {
  Seen seen;
  const auto* onlookers = trainer.onlookers;
  if (onlookers == nullptr || !onlookers->any()) return seen;
  const auto device = trainer.sharded.memory().device();
  trainer.phases.enter(Phase::kForward);
  onlookers->while_held([&] {
    for (size_t i = 0; i < data.micro_batches.size(); ++i) {
      const auto own = tensor::to_device(data.micro_batches[i], device);
      tensor::Batch other;
      if (!data.mismatched.empty()) other = tensor::to_device(data.mismatched[i], device);
      seen.looks.push_back(
          onlookers->look(data::Split::kTrain, own, data.mismatched.empty() ? nullptr : &other));
    }
  });
  seen.statistics = onlookers->settle(seen.looks, data.counts);
  return seen;
}

// The loss is one mean over all micro-batches on all ranks, so gradients are summed, never
// averaged. Returns this rank's sum of losses, each times `weight`. `before_last` is called before
// the last backward.
Update accumulate_gradients(const Trainer& trainer, const StepData& data, double weight,
                            const std::function<void()>& before_last) {
  auto& [algorithm, sharded, optimizer, phases, before_change, onlookers] = trainer;
  const auto device = sharded.memory().device();
  Update result{.loss = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device)),
                .metrics = algorithms::MetricSums(algorithm.metrics())};
  const auto seen = look_at(trainer, data);
  const auto count = static_cast<int64_t>(data.micro_batches.size());
  for (int64_t i = 0; i < count; ++i) {
    phases.enter(Phase::kForward);
    sharded.begin_micro_batch(i, count);  // the stage decides when to reduce
    const auto batch = tensor::to_device(data.micro_batches[i], device);
    algorithms::StepView view{
        .key = data.key, .weight = weight, .counts = data.counts, .statistics = seen.statistics};
    if (!seen.looks.empty()) view.looks = seen.looks[static_cast<size_t>(i)];
    const auto part = algorithm.loss_sum(batch, view, sharded);
    phases.enter(Phase::kBackward);
    if (i + 1 == count && before_last) before_last();
    torch::autograd::backward({part.loss});
    sharded.end_micro_batch();
    result.loss += part.loss.detach();
    result.metrics.add(part.metrics);
  }
  return result;
}

}  // namespace

UpdateOptions update_options(const RunSteps& steps, int64_t step) {
  const auto& [config, scaler, peak_rate, total] = steps;
  // Schedules count updates. Online a step is several, and it has passed whatever became of them.
  const bool counts = scaler && !config::is_online(config.stage);
  const int64_t skipped = counts ? scaler->state().num_skipped : 0;
  return {.learning_rate = plan::learning_rate(config.schedule, peak_rate, step - skipped, total),
          .max_grad_norm = config.optimizer.max_grad_norm,
          .loss_scale = scaler ? scaler->scale() : 1,
          // An overflow of float16 is left out, whatever its scale is by now.
          .skips_non_finite =
              scaler != nullptr || config.optimizer.nan_policy == config::NanPolicy::kSkip};
}

std::vector<tensor::Batch> on_device(std::span<const tensor::HostBatch> batches,
                                     at::Device device) {
  std::vector<tensor::Batch> there;
  for (const auto& batch : batches) there.push_back(tensor::to_device(batch, device));
  return there;
}

Normaliser normaliser(int64_t count) {
  SKEIN_CHECK(count > 0, "a step has something to learn from");
  const auto power = static_cast<double>(std::bit_floor(static_cast<uint64_t>(count)));
  return {1 / power, power / static_cast<double>(count)};
}

namespace {

bool updates_in_backward(const Trainer& trainer, const UpdateOptions& options) {
  return trainer.sharded.has_host_ranges() && options.max_grad_norm == 0 &&
         !options.skips_non_finite;
}

// Every range is updated as soon as its gradient is complete.
void begin_early_step(const Trainer& trainer, double learning_rate, double factor) {
  if (trainer.before_change) trainer.before_change();
  const auto options = at::TensorOptions().device(trainer.sharded.memory().device());
  trainer.optimizer.begin_step(learning_rate, {at::full({}, factor, options.dtype(at::kDouble)),
                                               at::zeros({}, options.dtype(at::kFloat))});
  trainer.sharded.set_on_gradient(
      [&optimizer = trainer.optimizer](size_t range) { optimizer.step_range(range); });
}

}  // namespace

Update update(const Trainer& trainer, const StepData& data, const UpdateOptions& options) {
  const auto [power_of_two, unscaled_rest] = normaliser(trainer.algorithm.normaliser(data.counts));
  const double rest = unscaled_rest / options.loss_scale;
  const bool early = updates_in_backward(trainer, options);
  std::function<void()> before_last;
  if (early) before_last = [&] { begin_early_step(trainer, options.learning_rate, rest); };
  auto result = accumulate_gradients(trainer, data, power_of_two * options.loss_scale, before_last);
  result.loss = result.loss * rest;
  result.made_early = early;
  trainer.phases.enter(Phase::kOptimizer);
  {
    const trace::Scope scope("optimizer", "gradient norm", trace::Clock::kDevice);
    result.norm = trainer.sharded.gradient_norm({.max_norm = options.max_grad_norm, .scale = rest});
  }
  if (early) {
    trainer.sharded.set_on_gradient(nullptr);
    trainer.optimizer.end_step();
  } else {
    if (trainer.before_change) trainer.before_change();
    const trace::Scope scope("optimizer", "step", trace::Clock::kDevice);
    trainer.optimizer.step(options.learning_rate, result.norm.decision);  // scales and clips
  }
  trainer.sharded.publish();
  return result;
}

}  // namespace skein::train
