// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/learn.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/random.h"
#include "skein/ops/device.h"
#include "skein/plan/rates/schedule.h"
#include "skein/train/update.h"

namespace skein::train {
namespace {

// The mini-batches in the order of an iteration: another one each time, alike for every split.
std::vector<size_t> order_of(size_t count, uint64_t seed, int64_t step, int64_t iteration) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  if (iteration == 0) return order;
  for (size_t i = count; i > 1; --i) {
    const auto words = random::philox(random::mix(seed, static_cast<uint64_t>(step)),
                                      static_cast<uint64_t>(iteration), i);
    std::swap(order[i - 1], order[words.word[0] % i]);
  }
  return order;
}

}  // namespace

Learner::Learner(OnlineRun& online)
    : online_(online),
      run_(online.run),
      guard_(run_.config.optimizer.nan_policy, run_.sharded, run_.scaler.get()),
      gap_(run_.config.rollout, run_.dtype),
      critic_metrics_(online.critic ? online.critic->loss->metrics()
                                    : std::span<const algorithms::Metric>()) {}

bool Learner::policy_waits(int64_t step) const {
  return online_.critic && step < run_.config.ppo.critic_warmup;
}

void Learner::learn(const Experience& experience, int64_t step,
                    const std::vector<int64_t>& samples) {
  run_.metrics.add_tokens(experience.lengths);
  for (int64_t iteration = 0; iteration < online_.plan.iterations; ++iteration) {
    for (const auto i : order_of(experience.mini_batches.size(),
                                 static_cast<uint64_t>(run_.config.seed), step, iteration)) {
      const auto& mini_batch = experience.mini_batches[i];
      if (mini_batch.counts.targets == 0) continue;  // all of it is masked out
      if (online_.critic) update_critic(mini_batch, step, samples);
      if (policy_waits(step)) continue;
      update_policy(mini_batch, step, samples);
    }
  }
  for (const auto& [name, value] : experience.numbers) {
    if (!numbers_.contains(name)) names_.push_back(name);
    auto& [sum, count] = numbers_[name];
    sum += value;
    ++count;
  }
}

void Learner::update_policy(const MiniBatch& mini_batch, int64_t step,
                            const std::vector<int64_t>& samples) {
  const Trainer trainer{*run_.algorithm, run_.sharded, *run_.optimizer, run_.metrics.phases(),
                        [this] { before_update(run_); }};
  const auto options =
      update_options({run_.config, run_.scaler.get(), run_.peak_rate, run_.plan.total_steps}, step);
  // No dropout: what is compared are probabilities.
  const tensor::StepKey key{
      .seed = static_cast<uint64_t>(run_.config.seed), .step = step, .training = false};
  const auto done = update(trainer, {mini_batch.batches, mini_batch.counts, key}, options);
  guard_.watch(step + 1, done, samples);
  judge_and_log(run_, guard_, step + 1);
  run_.metrics.add_step(step + 1, done, {});
  grad_norm_ = done.norm.norm;
  learning_rate_ = options.learning_rate;
}

void Learner::update_critic(const MiniBatch& mini_batch, int64_t step,
                            const std::vector<int64_t>& samples) {
  auto& critic = *online_.critic;
  const Trainer trainer{*critic.loss, *critic.sharded, *critic.optimizer, run_.metrics.phases(),
                        [this] { before_update(run_); }};
  const auto options =
      update_options({run_.config, nullptr, critic.peak_rate, run_.plan.total_steps}, step);
  const tensor::StepKey key{
      .seed = static_cast<uint64_t>(run_.config.seed), .step = step, .training = false};
  const auto done = update(trainer, {mini_batch.batches, mini_batch.counts, key}, options);
  critic.guard->watch(step + 1, done, samples);
  const auto left_out = judge_update(run_, *critic.guard, step + 1);
  const auto finite = done.norm.norm.isfinite();
  const auto counts = left_out ? at::ones({}, finite.options()) : finite;
  critic_metrics_.add(done.metrics, counts);
  const auto loss = at::where(counts, done.loss, 0);
  critic_loss_ = critic_loss_.defined() ? critic_loss_ + loss : loss;
  critic_updates_ = critic_updates_.defined() ? critic_updates_ + counts : counts.to(at::kLong);
}

algorithms::NamedNumbers Learner::take_critic() {
  if (!critic_updates_.defined()) return {};
  auto& group = run_.world.group;
  const double sum = std::exchange(critic_loss_, at::Tensor()).item().toDouble();
  const double updates = std::exchange(critic_updates_, at::Tensor()).item().toDouble();
  const double mean = updates > 0 ? sum / updates : std::numeric_limits<double>::quiet_NaN();
  const auto metrics =
      std::exchange(critic_metrics_, algorithms::MetricSums(online_.critic->loss->metrics()));
  auto share = metrics.share(group.rank(), group.size());
  share.push_back(mean);
  auto all = group.sum(share);
  algorithms::NamedNumbers numbers{{"loss/value_avg", all.back()}};
  all.pop_back();
  std::ranges::move(metrics.numbers(all, group.size()), std::back_inserter(numbers));
  return numbers;
}

void Learner::check_gap(const algorithms::NamedNumbers& numbers, int64_t step) try {
  gap_.check(numbers, step, run_.world.is_first());
} catch (const UserError&) {
  run_.store.finish();  // all ranks end together: the save under way is healthy
  throw;
}

void Learner::write(int64_t step, double epoch) {
  algorithms::NamedNumbers numbers;
  for (const auto& name : std::exchange(names_, {})) {
    const auto& [sum, count] = numbers_.at(name);
    numbers.emplace_back(name, sum / static_cast<double>(count));
  }
  numbers_.clear();
  std::ranges::move(take_critic(), std::back_inserter(numbers));
  auto means = run_.metrics.take_means(run_.world.group);
  check_gap(means.metrics, step);
  means.metrics.insert(means.metrics.begin(), numbers.begin(), numbers.end());
  const auto grad_norm = std::exchange(grad_norm_, at::Tensor());
  run_.metrics.write({.step = step,
                      .epoch = epoch,
                      .means = std::move(means),
                      .grad_norm = grad_norm.defined() ? grad_norm.item<double>() : 0,
                      .learning_rate = std::exchange(learning_rate_, 0),
                      .has_updates = grad_norm.defined(),
                      .loss_scale = run_.scaler ? run_.scaler->scale() : 0,
                      .peak_memory_bytes = run_.sharded.memory().peak_bytes(),
                      .peak_host_bytes = run_.sharded.memory().all_peak_bytes().pinned_host,
                      .device_memory = ops::device_memory(run_.world.device.is_cuda())});
}

}  // namespace skein::train
