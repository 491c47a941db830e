// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/online/documents.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "skein/data/runs/groups.h"
#include "skein/data/runs/run_writer.h"

namespace skein::train {
namespace {

// Completions of one prompt that follow each other.
std::vector<data::Group> groups_of(const Prompts& prompts, std::span<const Sampled> samples) {
  std::vector<data::Group> groups;
  int64_t before = -1;
  for (const auto& sample : samples) {
    if (sample.prompt != std::exchange(before, sample.prompt)) {
      groups.push_back({.prompt = prompts.tokens[static_cast<size_t>(sample.prompt)]});
    }
    groups.back().answers.push_back(sample.tokens);
    groups.back().foreign.push_back(sample.foreign);
    groups.back().documents.push_back(sample.number);
  }
  return groups;
}

}  // namespace

tensor::HostBatch to_learn(const Prompts& prompts, std::span<const Sampled> samples,
                           const std::vector<double>& weights, bool shares) {
  auto batch = data::make_groups(groups_of(prompts, samples), shares);
  auto episodes = std::make_shared<tensor::HostEpisodes>();
  episodes->documents = batch.answers->documents;
  for (const auto& sample : samples) {
    episodes->samples.push_back(sample.number);
    episodes->weights.push_back(weights[static_cast<size_t>(sample.number)]);
    episodes->rollout_log_probs.insert(episodes->rollout_log_probs.end(), sample.log_probs.begin(),
                                       sample.log_probs.end());
  }
  batch.answers.reset();  // nobody has judged them in pairs
  batch.episodes = std::move(episodes);
  return batch;
}

tensor::HostBatch to_judge(std::span<const std::vector<int64_t>> texts) {
  data::RunWriter run;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int64_t> targets(texts[i].size(), tensor::kIgnore);
    run.add({texts[i], targets, static_cast<int64_t>(i)});
  }
  return run.finish(nullptr);
}

}  // namespace skein::train
