// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/batch.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "skein/core/error.h"

namespace skein::tensor {
namespace {

at::Tensor longs(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Documents of two, one and three tokens.
HostBatch three_documents() {
  return {.rows = 1,
          .length = 6,
          .tokens = {1, 2, 3, 4, 5, 6},
          .targets = {2, kIgnore, kIgnore, 5, kIgnore, 7},
          .documents = {30, 10, 20},
          .num_targets = 3,
          .document_ends = {2, 3, 6}};
}

TEST(Batch, ARunKnowsItsDocuments) {
  const auto batch = to_device(three_documents(), at::kCPU);
  ASSERT_TRUE(batch.run);
  const auto& run = *batch.run;
  EXPECT_TRUE(at::equal(batch.tokens, longs({1, 2, 3, 4, 5, 6}).unsqueeze(0)));
  EXPECT_TRUE(at::equal(batch.documents, longs({30, 10, 20})));
  EXPECT_TRUE(at::equal(run.bounds, at::tensor({0, 2, 3, 6}, at::kInt)));
  EXPECT_TRUE(at::equal(run.positions, longs({0, 1, 0, 0, 1, 2})));
  EXPECT_TRUE(at::equal(run.documents, longs({30, 30, 10, 20, 20, 20})));
  EXPECT_TRUE(at::equal(run.places, longs({0, 3, 5})));
  EXPECT_EQ(run.longest, 3);
  EXPECT_TRUE(at::equal(to_device(batch, at::kCPU).run->positions, run.positions));
}

// The first two answer the prompt of two tokens.
HostBatch two_answers() {
  return {.rows = 1,
          .length = 7,
          .tokens = {1, 2, 3, 4, 5, 6, 7},
          .targets = {kIgnore, kIgnore, 4, kIgnore, 6, kIgnore, kIgnore},
          .documents = {10, 10, 11, 12},
          .num_targets = 2,
          .document_ends = {2, 4, 6, 7},
          .continues = {-1, 0, 0, -1}};
}

TEST(Batch, AnswersGoOnBehindTheirPrompt) {
  const auto batch = to_device(to_device(two_answers(), at::kCPU), at::kCPU);
  const auto& run = *batch.run;
  EXPECT_TRUE(at::equal(run.positions, longs({0, 1, 2, 3, 2, 3, 0})));
  EXPECT_EQ(run.longest, 4);
  EXPECT_EQ(run.longest_own, 2);
  EXPECT_EQ(run.prompt_of(2).end, 2);
  EXPECT_EQ(run.prompt_of(3).length(), 0);
  const auto& shared = run.shared;
  ASSERT_TRUE(shared.any());
  EXPECT_EQ(shared.longest_prompt, 2);
  EXPECT_EQ(shared.longest_answers, 4) << "of both";
  EXPECT_TRUE(at::equal(shared.prompt_tokens, longs({0, 1})));
  EXPECT_TRUE(at::equal(shared.answer_tokens, longs({2, 3, 4, 5})));
  EXPECT_TRUE(at::equal(shared.prompt_bounds, at::tensor({0, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(shared.answer_bounds, at::tensor({0, 4}, at::kInt)));
}

TEST(Batch, RefusesAnswersApartFromTheirPrompt) {
  for (const std::vector<int32_t>& continues : {std::vector<int32_t>{-1, 0, -1, 0},
                                                {-1, 0, 1, -1},
                                                {1, -1, -1, -1},
                                                {-1, -1, -1, 3},
                                                {-1, 0, 0}}) {
    auto host = two_answers();
    host.continues = continues;
    EXPECT_THROW(to_device(host, at::kCPU), InternalError);
  }
}

TEST(Batch, EqualRowsAreNoRun) {
  auto host = three_documents();
  host.document_ends.clear();
  host.documents = {30};
  EXPECT_FALSE(to_device(host, at::kCPU).run);
}

TEST(Batch, RefusesARunThatDoesNotFillItsRow) {
  auto host = three_documents();
  host.document_ends = {2, 3, 5};
  EXPECT_THROW(to_device(host, at::kCPU), InternalError);
  host.document_ends = {2, 2, 6};
  EXPECT_THROW(to_device(host, at::kCPU), InternalError);
  host.document_ends = {2, 6};
  EXPECT_THROW(to_device(host, at::kCPU), InternalError);
}

// The last document is the first completion; the middle one has no target.
HostBatch two_completions() {
  auto host = three_documents();
  host.episodes = std::make_shared<const HostEpisodes>(HostEpisodes{
      .documents = {2, 0}, .samples = {9, 4}, .weights = {1, 0}, .advantages = {0.5, 1, -1}});
  return host;
}

TEST(Batch, EpisodesKnowTheirTargets) {
  auto host = two_completions();
  const auto check = [](const Episodes& episodes, const std::vector<int64_t>& places) {
    EXPECT_EQ(episodes.count(), 2);
    EXPECT_TRUE(at::equal(episodes.places, longs(places)));
    EXPECT_TRUE(at::equal(episodes.owners, longs({1, 0, 0})));
    EXPECT_TRUE(at::equal(episodes.targets, longs({1, 2, 0, 3}).view({2, 2})));
    EXPECT_TRUE(at::equal(episodes.num_targets, longs({2, 1})));
    EXPECT_TRUE(at::equal(episodes.weights, at::tensor({1.0, 0.0}, at::kDouble)));
    EXPECT_TRUE(at::equal(episodes.advantages, at::tensor({0.5, 1.0, -1.0}, at::kDouble)));
    EXPECT_FALSE(episodes.old_log_probs.defined());
    EXPECT_EQ(episodes.samples, (std::vector<int64_t>{9, 4}));
  };
  check(*to_device(host, at::kCPU).episodes, {0, 3, 5});
  const auto counts = episode_counts(host);
  EXPECT_EQ(counts.targets, 2);
  EXPECT_EQ(counts.samples, 2);
  // The same completions as rows: two tokens, one, three.
  host.document_ends.clear();
  host.rows = 3;
  host.length = 3;
  host.tokens = {1, 2, 0, 3, 0, 0, 4, 5, 6};
  host.targets = {2, kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, 5, kIgnore, 7};
  host.row_lengths = {2, 1, 3};
  check(*to_device(host, at::kCPU).episodes, {0, 6, 8});
}

TEST(Batch, EpisodesAreToldMoreLater) {
  const auto batch = to_device(two_completions(), at::kCPU);
  auto episodes = *batch.episodes;
  episodes.old_log_probs = at::tensor({-1.0, -2.0, -3.0}, at::kDouble);
  const auto more = to_device(with_episodes(batch, episodes), at::kCPU);
  EXPECT_TRUE(at::equal(more.episodes->old_log_probs, episodes.old_log_probs));
  EXPECT_TRUE(at::equal(more.tokens, batch.tokens));
  EXPECT_FALSE(batch.episodes->old_log_probs.defined());
}

TEST(Batch, RefusesEpisodesThatAreNotAllOfItsTargets) {
  const auto refused = [](HostEpisodes episodes) {
    auto host = three_documents();
    host.episodes = std::make_shared<const HostEpisodes>(std::move(episodes));
    EXPECT_THROW(to_device(host, at::kCPU), InternalError);
  };
  refused({.documents = {2}});
  refused({.documents = {2, 0}, .weights = {1}});
  refused({.documents = {2, 0}, .returns = {1, 2}});
}

}  // namespace
}  // namespace skein::tensor
