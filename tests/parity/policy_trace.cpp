// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// For the parity tests: what losses and advantages of sampled completions are. Reads one JSON
// object, whose "ask" names a function below, and prints its answer as another.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "skein/algorithms/advantages.h"
#include "skein/algorithms/critic.h"
#include "skein/algorithms/policy_losses.h"
#include "skein/config/syntax/values.h"

namespace {

using namespace skein;
using Json = nlohmann::json;
using Numbers = std::vector<double>;

template <typename Choice>
void read_choice(const Json& keys, const char* name, Choice& choice) {
  if (!keys.contains(name)) return;
  for (const auto& word : config::spellings_of(choice).known) {
    if (keys[name] == word.text) {
      choice = word.value;
      return;
    }
  }
  throw std::runtime_error(fmt::format("no such {}", name));
}

template <typename Number>
void read_number(const Json& keys, const char* name, Number& number) {
  if (keys.contains(name)) number = keys[name].get<double>();
}

// null: nobody has scored it.
Numbers numbers_in(const Json& list) {
  Numbers numbers;
  for (const auto& value : list) {
    numbers.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                      : value.get<double>());
  }
  return numbers;
}

Numbers numbers_in(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

// Completions of some lengths, each behind one token of a prompt.
tensor::HostBatch batch_of(const Json& asked) {
  tensor::HostEpisodes episodes;
  tensor::HostBatch batch{.rows = 1};
  for (const auto& length : asked["lengths"]) {
    episodes.documents.push_back(std::ssize(batch.documents));
    batch.documents.push_back(std::ssize(batch.documents));
    batch.targets.resize(batch.targets.size() + length.get<size_t>(), 1);
    batch.targets.push_back(tensor::kIgnore);
    batch.num_targets += length.get<int64_t>();
    batch.document_ends.push_back(static_cast<int32_t>(batch.targets.size()));
  }
  batch.length = std::ssize(batch.targets);
  batch.tokens.resize(batch.targets.size(), 1);
  const auto read = [&](const char* name, Numbers& numbers) {
    if (asked.contains(name)) numbers = numbers_in(asked[name]);
  };
  read("weights", episodes.weights);
  read("advantages", episodes.advantages);
  read("old_log_probs", episodes.old_log_probs);
  read("reference_log_probs", episodes.reference_log_probs);
  read("rollout_log_probs", episodes.rollout_log_probs);
  read("returns", episodes.returns);
  read("old_values", episodes.old_values);
  batch.episodes = std::make_shared<const tensor::HostEpisodes>(std::move(episodes));
  return batch;
}

algorithms::PolicyGradientOptions policy_options(const Json& keys) {
  algorithms::PolicyGradientOptions options;
  read_choice(keys, "loss_type", options.loss);
  read_choice(keys, "importance_sampling_level", options.level);
  read_choice(keys, "kl_estimator", options.kl);
  read_choice(keys, "correction", options.correction);
  read_number(keys, "epsilon", options.epsilon);
  read_number(keys, "epsilon_high", options.epsilon_high);
  read_number(keys, "delta", options.delta);
  read_number(keys, "clip_ratio_c", options.dual_clip);
  read_number(keys, "beta", options.beta);
  read_number(keys, "correction_cap", options.correction_cap);
  read_number(keys, "max_completion_length", options.max_completion_length);
  return options;
}

Json answer_of(const at::Tensor& loss, const at::Tensor& leaf,
               std::span<const algorithms::Metric> metrics,
               const algorithms::MetricValues& values) {
  algorithms::MetricSums sums(metrics);
  sums.add(values);
  Json told = Json::object();
  for (const auto& [name, value] : sums.numbers(sums.share(0, 1), 1)) told[name] = value;
  const auto gradient = torch::autograd::grad({loss}, {leaf})[0];
  return {{"loss", loss.item<double>()}, {"gradient", numbers_in(gradient)}, {"metrics", told}};
}

Json policy_loss(const Json& asked) {
  const auto options = policy_options(asked["options"]);
  const auto host = batch_of(asked);
  const auto batch = tensor::to_device(host, at::kCPU);
  const auto leaf = at::tensor(numbers_in(asked["log_probs"]), at::kDouble).set_requires_grad(true);
  const auto entropy = at::tensor(numbers_in(asked["entropy"]), at::kDouble);
  const auto sum = algorithms::policy_loss_sum(leaf, entropy, *batch.episodes, options);
  const auto divisor =
      static_cast<double>(algorithms::policy_normaliser(tensor::episode_counts(host), options));
  return answer_of(sum.loss / divisor, leaf, algorithms::policy_metrics(options), sum.metrics);
}

Json value_loss(const Json& asked) {
  const auto host = batch_of(asked);
  const auto batch = tensor::to_device(host, at::kCPU);
  const auto leaf = at::tensor(numbers_in(asked["values"]), at::kDouble).set_requires_grad(true);
  const auto part =
      algorithms::value_loss_sum(leaf, *batch.episodes, {.clip_range = asked["clip_range"]});
  const auto divisor = static_cast<double>(tensor::episode_counts(host).targets);
  return answer_of(part.loss / divisor, leaf, {}, {});
}

Json group_advantages(const Json& asked) {
  algorithms::GroupOptions options{.size = asked["size"]};
  read_choice(asked, "scale", options.scale);
  return algorithms::group_advantages(numbers_in(asked["rewards"]), options);
}

Json leave_one_out(const Json& asked) {
  return algorithms::leave_one_out_advantages(numbers_in(asked["rewards"]), asked["size"]);
}

// The path of PPO's numbers: scores and KL to rewards, advantages and returns, whitened.
Json ppo_advantages(const Json& asked) {
  const auto lengths = asked["lengths"].get<std::vector<int64_t>>();
  auto estimator = config::KlEstimator::kK1;
  read_choice(asked, "kl_estimator", estimator);
  const auto kl = algorithms::kl_estimates(numbers_in(asked["log_probs"]),
                                           numbers_in(asked["reference_log_probs"]), estimator);
  const auto rewards = algorithms::token_rewards(numbers_in(asked["scores"]), lengths,
                                                 {.kl = kl, .coefficient = asked["kl_coef"]});
  auto gae = algorithms::gae(rewards, numbers_in(asked["values"]), lengths,
                             {.gamma = asked["gamma"], .lambda = asked["lambda"]});
  auto to_go = algorithms::rewards_to_go(rewards, lengths, asked["gamma"]);
  for (auto* numbers : {&gae.advantages, &to_go}) {
    algorithms::whiten(*numbers,
                       algorithms::joined(algorithms::completion_moments(*numbers, lengths)));
  }
  return {{"rewards", rewards},
          {"advantages", gae.advantages},
          {"returns", gae.returns},
          {"rewards_to_go", to_go}};
}

Json answer(const Json& asked) {
  const auto name = asked["ask"].get<std::string>();
  if (name == "policy_loss") return policy_loss(asked);
  if (name == "value_loss") return value_loss(asked);
  if (name == "group_advantages") return group_advantages(asked);
  if (name == "leave_one_out") return leave_one_out(asked);
  if (name == "ppo_advantages") return ppo_advantages(asked);
  throw std::runtime_error("nothing is called " + name);
}

}  // namespace

int main() try {
  fmt::print("{}\n", answer(Json::parse(std::cin)).dump());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
