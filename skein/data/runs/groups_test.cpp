// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/runs/groups.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/data/runs/run_writer.h"

namespace skein::data {
namespace {

using TokenIds = std::vector<int64_t>;
using Places = std::vector<int32_t>;
constexpr int64_t kNoTarget = tensor::kIgnore;

const std::vector<Group> kGroups{
    {.prompt = {1, 2, 3}, .answers = {{4, 5}, {6}}, .documents = {70, 71}},
    {.prompt = {8}, .answers = {{9}, {4}}, .documents = {72, 73}},
    {.prompt = {8, 7}, .answers = {{5}}, .documents = {74}},
};

TEST(Groups, APromptIsComputedOnceUpToItsLastToken) {
  const auto batch = make_groups(kGroups, true);
  EXPECT_EQ(batch.tokens, (TokenIds{1, 2, 3, 4, 5, 3, 6, 8, 9, 8, 4, 8, 7, 5}));
  EXPECT_EQ(batch.targets, (TokenIds{kNoTarget, kNoTarget, 4, 5, kNoTarget, 6, kNoTarget, 9,
                                     kNoTarget, 4, kNoTarget, kNoTarget, 5, kNoTarget}));
  EXPECT_EQ(batch.document_ends, (Places{2, 5, 7, 9, 11, 14}));
  EXPECT_EQ(batch.continues, (Places{-1, 0, 0, -1, -1, -1})) << "of one token, or for one answer";
  EXPECT_EQ(batch.documents, (TokenIds{70, 70, 71, 72, 73, 74}));
  EXPECT_EQ(batch.num_targets, 6);
  EXPECT_EQ(batch.rows, 1);
  EXPECT_EQ(batch.length, 14);
  ASSERT_TRUE(batch.answers);
  EXPECT_EQ(batch.answers->documents, (TokenIds{1, 2, 3, 4, 5}));
  EXPECT_EQ(batch.answers->samples, (TokenIds{70, 71, 72, 73, 74}));
  EXPECT_TRUE(batch.answers->alone);
}

TEST(Groups, WithoutSharingEachDocumentIsWhole) {
  const auto batch = make_groups(kGroups, false);
  EXPECT_EQ(batch.tokens, (TokenIds{1, 2, 3, 4, 5, 1, 2, 3, 6, 8, 9, 8, 4, 8, 7, 5}));
  EXPECT_EQ(batch.document_ends, (Places{5, 9, 11, 13, 16}));
  EXPECT_TRUE(batch.continues.empty());
  EXPECT_EQ(batch.documents, (TokenIds{70, 71, 72, 73, 74}));
  EXPECT_EQ(batch.answers->documents, (TokenIds{0, 1, 2, 3, 4}));
  EXPECT_EQ(batch.num_targets, 6);
}

TEST(Groups, ForeignTokensAreNoTargets) {
  const std::vector<Group> groups{{.prompt = {1, 2},
                                   .answers = {{4, 5, 6, 7}, {6}},
                                   .documents = {70, 71},
                                   .foreign = {{0, 1, 1, 0}, {}}}};
  const auto batch = make_groups(groups, true);
  EXPECT_EQ(batch.targets,
            (TokenIds{kNoTarget, 4, kNoTarget, kNoTarget, 7, kNoTarget, 6, kNoTarget}));
  EXPECT_EQ(batch.num_targets, 3);
}

TEST(Groups, OfNothingIsATokenThatPredictsNothing) {
  for (const bool shares : {false, true}) {
    const auto batch = make_groups({}, shares);
    EXPECT_EQ(batch.tokens, TokenIds{0});
    EXPECT_EQ(batch.targets, TokenIds{kNoTarget});
    EXPECT_EQ(batch.document_ends, Places{1});
    EXPECT_EQ(batch.num_targets, 0);
    EXPECT_TRUE(batch.answers->documents.empty());
  }
}

TEST(Groups, AnEmptyAnswerIsItsPromptsLastToken) {
  const auto batch = make_groups(
      std::vector{Group{.prompt = {1, 2}, .answers = {{}, {3}}, .documents = {0, 1}}}, true);
  EXPECT_EQ(batch.tokens, (TokenIds{1, 2, 2, 3}));
  EXPECT_EQ(batch.targets, (TokenIds{kNoTarget, kNoTarget, 3, kNoTarget}));
}

TEST(RunWriter, RefusesWhatIsNotShared) {
  const TokenIds one{1, 2, 3}, other{1, 4, 3}, targets{kNoTarget, kNoTarget, 5},
      early{kNoTarget, 3, 5};
  RunWriter run;
  EXPECT_THROW(run.add_group(std::vector<DocumentView>{{one, targets, 0}, {other, targets, 1}}, 3),
               InternalError);
  EXPECT_THROW(run.add_group(std::vector<DocumentView>{{one, early, 0}, {one, early, 1}}, 3),
               InternalError);
  EXPECT_THROW(run.add_group(std::vector<DocumentView>{{one, targets, 0}, {one, early, 1}}, 3),
               InternalError);
  run.add_group(std::vector<DocumentView>{{one, early, 0}, {one, early, 1}}, 2);
}

}  // namespace
}  // namespace skein::data
