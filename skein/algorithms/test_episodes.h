// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Five completions of odd lengths for tests, one of them masked out: 2, 5, 1, 1 and 4 tokens.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randn.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "skein/algorithms/algorithm.h"
#include "skein/model/tiny_models.h"
#include "skein/tensor/batch.h"

namespace skein::algorithms {

struct TestEpisodes {
  std::vector<int64_t> prompts{1, 2, 4, 1, 2}, lengths{2, 5, 1, 1, 4};
  std::vector<double> weights{1, 1, 1, 0, 1};
  static constexpr int64_t kTargets = 13;

  // Some of them, as a run of documents or as padded rows.
  tensor::HostBatch host(const std::vector<size_t>& which, bool as_rows = false) const {
    auto episodes = std::make_shared<tensor::HostEpisodes>();
    tensor::HostBatch batch{.rows = 1};
    if (as_rows) batch = {.rows = std::ssize(which), .length = 8};
    for (const size_t e : which) {
      episodes->documents.push_back(std::ssize(batch.documents));
      episodes->samples.push_back(static_cast<int64_t>(e));
      episodes->weights.push_back(weights[e]);
      batch.documents.push_back(static_cast<int64_t>(e));
      const int64_t length = prompts[e] + lengths[e];
      for (int64_t t = 0; t < (as_rows ? 8 : length); ++t) {
        const bool has_target = t + 1 >= prompts[e] && t + 1 < length;
        batch.tokens.push_back(t < length ? token(e, t) : 0);
        batch.targets.push_back(has_target ? token(e, t + 1) : tensor::kIgnore);
        batch.num_targets += has_target;
      }
      if (as_rows) {
        batch.row_lengths.push_back(length);
      } else {
        batch.document_ends.push_back(static_cast<int32_t>(batch.tokens.size()));
      }
    }
    if (!as_rows) batch.length = std::ssize(batch.tokens);
    batch.episodes = episodes;
    return batch;
  }

  static int64_t token(size_t episode, int64_t t) {
    return (static_cast<int64_t>(episode) * 5 + t * 3) % 17;
  }

  // Of numbers (13) of all targets those of some completions.
  at::Tensor part(const at::Tensor& all, const std::vector<size_t>& which) const {
    std::vector<at::Tensor> parts;
    for (const size_t e : which) {
      int64_t first = 0;
      for (size_t before = 0; before < e; ++before) first += lengths[before];
      parts.push_back(all.narrow(0, first, lengths[e]));
    }
    return at::cat(parts);
  }
};

constexpr tensor::StepKey kStill{.training = false};
inline const std::vector<size_t> kAll{0, 1, 2, 3, 4};

// (13) each, as if a rollout had told them.
struct TestNumbers {
  at::Tensor advantages, old_log_probs, reference_log_probs, rollout_log_probs, returns, old_values;

  explicit TestNumbers(const at::Tensor& log_probs) {
    at::manual_seed(3);
    const auto noise = [&](double size) {
      return at::randn(log_probs.sizes(), at::kDouble) * size;
    };
    const auto now = log_probs.detach();
    advantages = noise(1);
    old_log_probs = now + noise(0.3);
    reference_log_probs = now + noise(0.5);
    rollout_log_probs = old_log_probs + noise(0.4);
    returns = noise(1);
    old_values = noise(0.5);
  }

  // A batch of some completions that knows theirs.
  tensor::Batch told(const TestEpisodes& given, const std::vector<size_t>& which,
                     bool as_rows = false) const {
    const auto batch = tensor::to_device(given.host(which, as_rows), at::kCPU);
    auto episodes = *batch.episodes;
    episodes.advantages = given.part(advantages, which);
    episodes.old_log_probs = given.part(old_log_probs, which);
    episodes.reference_log_probs = given.part(reference_log_probs, which);
    episodes.rollout_log_probs = given.part(rollout_log_probs, which);
    episodes.returns = given.part(returns, which);
    episodes.old_values = given.part(old_values, which);
    return tensor::with_episodes(batch, episodes);
  }
};

// A rank for which no completion is left.
inline tensor::Batch without_episodes() {
  const tensor::HostBatch host{.rows = 1,
                               .length = 1,
                               .tokens = {0},
                               .targets = {tensor::kIgnore},
                               .documents = {0},
                               .document_ends = {1},
                               .episodes = std::make_shared<tensor::HostEpisodes>()};
  return tensor::to_device(host, at::kCPU);
}

// Of parts of one step what is told of it.
inline std::map<std::string, double> told_numbers(std::span<const Metric> metrics,
                                                  const std::vector<MetricValues>& parts) {
  MetricSums sums(metrics);
  for (const auto& part : parts) sums.add(part);
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : sums.numbers(sums.share(0, 1), 1)) numbers[name] = value;
  return numbers;
}

}  // namespace skein::algorithms
