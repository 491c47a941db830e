// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/diagnosis.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace skein::launch {
namespace {

// Short limits, so that numbers are easy to read.
const Limits kLimits{.collective = std::chrono::seconds(20),
                     .first_step = std::chrono::seconds(60),
                     .join = std::chrono::seconds(15),
                     .heartbeat = std::chrono::seconds(4)};

board::Call gather_call(uint64_t sequence, int64_t age_ms, bool done) {
  return {.sequence = sequence,
          .group = "world",
          .operation = "all_gather",
          .dtype = "float32",
          .count = 4096,
          .step = 12,
          .site = "sharded.cpp:120",
          .age_ms = age_ms,
          .done = done};
}

// In backward of step 12; its calls up to `issued` have ended.
RankView working_rank(int rank, uint64_t issued, int64_t progress_ms) {
  RankView view{.board = {.rank = rank,
                          .pid = 1000 + rank,
                          .phase = board::Phase::kBackward,
                          .step = 11,
                          .steps_here = 3,
                          .phase_ms = progress_ms,
                          .beat_ms = 60,
                          .progress_ms = progress_ms,
                          .progress = {},
                          .message = {},
                          .samples = {},
                          .issued = issued,
                          .calls = {},
                          .gaps_ms = {1, 2, 3}},
                .host = fmt::format("host{}", rank)};
  for (uint64_t n = issued > 3 ? issued - 3 : 1; n <= issued; ++n) {
    view.board.calls.push_back(gather_call(n, progress_ms, true));
  }
  return view;
}

RankView waiting_rank(int rank, uint64_t sequence, int64_t age_ms) {
  auto view = working_rank(rank, sequence, age_ms);
  view.board.calls.back().done = false;
  return view;
}

RankView joining_rank(int rank, board::Phase phase, int64_t age_ms) {
  auto view = working_rank(rank, 0, age_ms);
  view.board.phase = phase;
  view.board.step = view.board.steps_here = 0;
  return view;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in: " << text;
  }
}

void expect_verdict(const std::optional<Verdict>& verdict, Trouble trouble, int rank,
                    const std::vector<std::string>& parts) {
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->trouble, trouble) << verdict->text;
  EXPECT_EQ(verdict->rank, rank) << verdict->text;
  expect_parts(verdict->text, parts);
}

TEST(Diagnosis, HealthyRanksAreLeftAlone) {
  EXPECT_FALSE(diagnose({}, kLimits));
  EXPECT_FALSE(diagnose(std::vector{working_rank(0, 57, 10'000)}, kLimits));
  // A rank that computes for long while the other waits, within the limit.
  EXPECT_FALSE(
      diagnose(std::vector{waiting_rank(0, 57, 19'000), working_rank(1, 56, 19'500)}, kLimits));
  // Long work without anybody waiting.
  EXPECT_FALSE(
      diagnose(std::vector{working_rank(0, 57, 50'000), working_rank(1, 57, 50'000)}, kLimits));
  // One is far ahead.
  EXPECT_FALSE(diagnose(std::vector{waiting_rank(0, 99, 5), working_rank(1, 57, 5)}, kLimits));
  // Nobody has attached a page.
  std::vector<RankView> bare(3);
  for (auto& rank : bare) rank.board.progress_ms = rank.board.beat_ms = 10'000'000;
  EXPECT_FALSE(diagnose(bare, kLimits));
}

TEST(Diagnosis, AStoppedProcessIsNamed) {
  std::vector ranks{waiting_rank(0, 57, 4200), working_rank(1, 56, 4100),
                    waiting_rank(2, 57, 4100)};
  ranks[1].board.beat_ms = 4100;
  EXPECT_FALSE(diagnose(ranks, kLimits)) << "its process is not stopped";
  ranks[1].process_state = 'T';
  expect_verdict(
      diagnose(ranks, kLimits), Trouble::kStopped, 1,
      {"rank 1 on host1 (pid 1001) has been stopped (SIGSTOP) for 4.1 s in backward of step 12",
       "its last call was call #56, all_gather",
       "ranks 0, 2 waited for 4.2 s in call #57, all_gather of 4096 float32 (step 12, "
       "sharded.cpp:120)"});
  ranks[1].process_state = 't';
  expect_verdict(diagnose(ranks, kLimits), Trouble::kStopped, 1, {"by a debugger"});
  ranks[1].board.beat_ms = 3900;
  EXPECT_FALSE(diagnose(ranks, kLimits)) << "too early";
  ranks[1].board.beat_ms = 50'000;
  auto off = kLimits;
  off.heartbeat = std::chrono::milliseconds(0);
  EXPECT_FALSE(diagnose(ranks, off));
  ranks[1].ended = true;
  EXPECT_FALSE(diagnose(ranks, kLimits));
}

TEST(Diagnosis, SilenceOfAnotherKindCountsLater) {
  std::vector ranks{waiting_rank(0, 57, 18'000), working_rank(1, 56, 18'000)};
  ranks[1].process_state = 'D';
  ranks[1].board.beat_ms = 29'000;
  EXPECT_FALSE(diagnose(ranks, kLimits));
  ranks[1].board.beat_ms = 30'000;
  expect_verdict(
      diagnose(ranks, kLimits), Trouble::kStopped, 1,
      {"rank 1 on host1 (pid 1001) has given no sign of life for 30.0 s (state D, blocked"});
  ranks[1].board.pid = 0;  // it has never beaten
  EXPECT_FALSE(diagnose(ranks, kLimits));
}

TEST(Diagnosis, ALateRankIsNamedWithBothCalls) {
  std::vector ranks{waiting_rank(0, 57, 20'100), working_rank(1, 56, 20'300),
                    waiting_rank(2, 57, 20'200)};
  expect_verdict(
      diagnose(ranks, kLimits), Trouble::kLate, 1,
      {"rank 1 on host1 (pid 1001) is late: no sign of work for 20.3 s in backward of step 12",
       "its last call was call #56, all_gather of 4096 float32 (step 12, sharded.cpp:120)",
       "ranks 0, 2 waited for 20.2 s in call #57, all_gather", "the limit is 20.0 s"});
}

// The step's agreement is issued before backward and read a step later.
RankView with_agreement(RankView rank, bool done) {
  const int64_t age_ms = rank.board.progress_ms;
  rank.board.calls.push_back({.sequence = ++rank.board.issued,
                              .group = "world",
                              .operation = "host sum",
                              .dtype = "int64",
                              .count = 1,
                              .step = 12,
                              .site = "offline.cpp:96",
                              .age_ms = age_ms,
                              .done = done});
  return rank;
}

TEST(Diagnosis, AnAgreementUnderWayBlamesNobodyWhoComputes) {
  // All have issued it and compute: the last came not long ago.
  EXPECT_FALSE(diagnose(std::vector{with_agreement(working_rank(0, 56, 30'000), false),
                                    with_agreement(working_rank(1, 56, 300), false)},
                        kLimits));
  // It has ended everywhere, and all compute for long.
  EXPECT_FALSE(diagnose(std::vector{with_agreement(working_rank(0, 56, 50'000), true),
                                    with_agreement(working_rank(1, 56, 50'000), true)},
                        kLimits));
  // One has yet to come to it, and works.
  EXPECT_FALSE(diagnose(
      std::vector{with_agreement(working_rank(0, 56, 30'000), false), working_rank(1, 56, 300)},
      kLimits));
}

TEST(Diagnosis, WhoMissesAnAgreementUnderWayIsLate) {
  std::vector ranks{with_agreement(working_rank(0, 56, 30'000), false),
                    working_rank(1, 56, 30'000)};
  const std::vector<std::string> parts{
      "rank 1 on host1 (pid 1001) is late", "its last call was call #56, all_gather",
      "rank 0 waited for 30.0 s in call #57, host sum of 1 int64 (step 12, offline.cpp:96)"};
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 1, parts);
  // The first has gone on to tensors meanwhile.
  ranks[0].board.calls.push_back(gather_call(++ranks[0].board.issued, 25'000, false));
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 1, parts);
}

TEST(Diagnosis, ProgressIsNeverLate) {
  std::vector ranks{waiting_rank(0, 57, 500'000), working_rank(1, 56, 300)};
  EXPECT_FALSE(diagnose(ranks, kLimits));
  ranks[1].board.progress = "writing checkpoint-10";
  ranks[1].board.progress_ms = 25'000;
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 1, {"(writing checkpoint-10)"});
}

TEST(Diagnosis, WhoMayWaitForWorkOfAnotherIsNotLate) {
  std::vector ranks{waiting_rank(0, 57, 500'000), working_rank(1, 56, 300),
                    working_rank(2, 56, 500'000)};
  EXPECT_FALSE(diagnose(ranks, kLimits));
  ranks[1] = waiting_rank(1, 57, 100);
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 2, {"rank 2 on host2"});
}

TEST(Diagnosis, OfSeveralThatWaitTheLastToComeIsLate) {
  const std::vector ranks{waiting_rank(0, 57, 30'000), waiting_rank(1, 56, 30'000),
                          working_rank(2, 55, 30'000)};
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 2,
                 {"rank 2 on host2", "rank 1 waited for 30.0 s in call #56",
                  "rank 0 waited for 30.0 s in call #57"});
}

TEST(Diagnosis, AnEndedRankThatOthersWaitForIsLate) {
  std::vector ranks{waiting_rank(0, 57, 21'000), working_rank(1, 56, 21'000)};
  ranks[1].ended = true;
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 1,
                 {"rank 1 on host1 (pid 1001) has ended"});
}

TEST(Diagnosis, ACallThatAllAreInsideIsNobodysFault) {
  std::vector ranks{waiting_rank(0, 57, 33'000), waiting_rank(1, 57, 19'000)};
  EXPECT_FALSE(diagnose(ranks, kLimits)) << "it could begin 19 s ago";
  ranks[1] = waiting_rank(1, 57, 22'000);
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 0,
                 {"all ranks have issued call #57, all_gather", "the last 22.0 s ago",
                  "it does not end on ranks 0, 1", "network"});
}

TEST(Diagnosis, AStaleHeartbeatIsNamedBeforeTheNetwork) {
  std::vector ranks{waiting_rank(0, 57, 21'000), waiting_rank(1, 57, 20'500)};
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 0,
                 {"the network between them, or a GPU"});
  ranks[1].board.beat_ms = 20'400;
  ranks[1].process_state = 'D';
  expect_verdict(diagnose(ranks, kLimits), Trouble::kStopped, 1,
                 {"rank 1 on host1 (pid 1001) has given no sign of life for 20.4 s (state D, "
                  "blocked in the kernel",
                  "rank 0 waited for 21.0 s in call #57"});
  // Also before one that is late because of it.
  ranks[0] = working_rank(0, 56, 21'000);
  expect_verdict(diagnose(ranks, kLimits), Trouble::kStopped, 1, {"no sign of life"});
  ranks[1].board.beat_ms = 3'900;
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 0, {"rank 0", "is late"});
}

TEST(Diagnosis, TheFirstStepMayTakeLonger) {
  std::vector ranks{waiting_rank(0, 57, 59'000), working_rank(1, 56, 59'000)};
  for (auto& rank : ranks) rank.board.steps_here = 0;
  EXPECT_FALSE(diagnose(ranks, kLimits));
  ranks[0].board.steps_here = 1;
  EXPECT_TRUE(diagnose(ranks, kLimits));
  ranks = {waiting_rank(0, 57, 60'000), working_rank(1, 56, 60'000)};
  for (auto& rank : ranks) rank.board.steps_here = 0;
  expect_verdict(diagnose(ranks, kLimits), Trouble::kLate, 1,
                 {"the limit is 60.0 s; ddp_timeout sets it"});
  auto after_a_request = kLimits;
  after_a_request.key = "stop_grace";
  expect_verdict(diagnose(ranks, after_a_request), Trouble::kLate, 1, {"; stop_grace sets it"});
}

TEST(Diagnosis, AdaptiveLimitsFollowTheGaps) {
  auto limits = kLimits;
  limits.collective = std::chrono::seconds(1800);
  limits.adaptive = true;
  const auto judge = [&](int64_t age_ms, std::vector<int64_t> gaps) {
    std::vector ranks{waiting_rank(0, 57, age_ms), working_rank(1, 56, age_ms)};
    ranks[0].board.gaps_ms = std::move(gaps);
    return diagnose(ranks, limits).has_value();
  };
  EXPECT_FALSE(judge(9'900, {}));
  EXPECT_TRUE(judge(10'000, {}));
  EXPECT_TRUE(judge(10'000, std::vector<int64_t>(100, 400)));
  const std::vector<int64_t> slow(100, 3000);  // 20 x 3 s
  EXPECT_FALSE(judge(59'000, slow));
  EXPECT_TRUE(judge(60'000, slow));
  std::vector<int64_t> with_pause(255, 1);  // one long forward among many short ones
  with_pause.back() = 10'000;
  EXPECT_FALSE(judge(39'000, with_pause));
  EXPECT_TRUE(judge(40'000, with_pause));
  limits.collective = std::chrono::seconds(30);  // ddp_timeout stays the most
  EXPECT_TRUE(judge(30'000, slow));
}

TEST(Diagnosis, CallsThatDifferAreBothNamed) {
  const auto judge = [](void (*change)(board::Call&), int64_t age_ms) {
    std::vector ranks{waiting_rank(0, 57, age_ms), waiting_rank(1, 57, age_ms / 2)};
    change(ranks[1].board.calls.back());
    return diagnose(ranks, kLimits);
  };
  const auto broadcast = [](board::Call& call) {
    call.operation = "broadcast from rank 1";
    call.site = "other.cpp:7";
  };
  EXPECT_FALSE(judge(broadcast, 900)) << "too early";
  expect_verdict(
      judge(broadcast, 1000), Trouble::kMismatch, 1,
      {"calls #57 do not match",
       "rank 0 on host0 (pid 1000) in backward of step 12: call #57, all_gather of 4096 "
       "float32 (step 12, sharded.cpp:120), under way for 1.0 s",
       "rank 1 on host1 (pid 1001) in backward of step 12: call #57, broadcast from rank "
       "1 of 4096 float32 (step 12, other.cpp:7)"});
  expect_verdict(judge([](board::Call& call) { call.count = 8; }, 1000), Trouble::kMismatch, 1,
                 {"of 4096 float32", "of 8 float32"});
  expect_verdict(judge([](board::Call& call) { call.dtype = "int64"; }, 1000), Trouble::kMismatch,
                 1, {"of 4096 float32", "of 4096 int64"});
  EXPECT_FALSE(judge([](board::Call& call) { call.site = "other.cpp:7"; }, 5000));
}

TEST(Diagnosis, ADifferenceCountsAlsoWhenBothCallsEnded) {
  std::vector ranks{working_rank(0, 57, 5), working_rank(1, 57, 5)};
  ranks[1].board.calls[2].dtype = "int32";  // as many bytes: the network does not mind
  expect_verdict(diagnose(ranks, kLimits), Trouble::kMismatch, 1, {"calls #56 do not match"});
}

TEST(Diagnosis, TheFewAreToBlameForADifference) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < 5; ++rank) ranks.push_back(waiting_rank(rank, 57, 2000));
  ranks[0].board.calls.back().count = 3;
  expect_verdict(diagnose(ranks, kLimits), Trouble::kMismatch, 0,
                 {"of 3 float32", "rank 1 on host1"});
}

TEST(Diagnosis, MissingRanksAreListed) {
  std::vector ranks{joining_rank(0, board::Phase::kJoining, 14'900),
                    joining_rank(1, board::Phase::kStarting, 20'000),
                    joining_rank(2, board::Phase::kStarting, 20'000)};
  ranks[2].board.pid = 0;
  EXPECT_FALSE(diagnose(ranks, kLimits)) << "nobody has waited for long enough";
  ranks[0].board.phase_ms = 15'000;
  expect_verdict(diagnose(ranks, kLimits), Trouble::kMissing, 1,
                 {"ranks 1, 2 of 3 did not join within 15.0 s; rank 0 waited",
                  "rank 1 on host1 (pid 1001) while starting, no sign of work for 20.0 s",
                  "rank 2 on host2 while starting"});
  ranks[1].board.progress_ms = 100;
  EXPECT_FALSE(diagnose(ranks, kLimits)) << "rank 1 is on its way, and rank 2 may wait for it";
}

TEST(Diagnosis, ARankThatMissesTheFirstCallIsMissing) {
  std::vector ranks{waiting_rank(0, 1, 16'000), joining_rank(1, board::Phase::kLoading, 16'000)};
  ranks[0].board.steps_here = 0;
  expect_verdict(diagnose(ranks, kLimits), Trouble::kMissing, 1,
                 {"rank 1 of 2 did not join", "rank 1 on host1 (pid 1001) while loading"});
}

TEST(Diagnosis, AllJoiningInVainIsTheNetwork) {
  std::vector ranks{joining_rank(0, board::Phase::kJoining, 16'000),
                    joining_rank(1, board::Phase::kJoining, 14'000)};
  expect_verdict(diagnose(ranks, kLimits), Trouble::kMissing, 0,
                 {"rank 0 of 2 could not reach", "network"});
}

TEST(LastCalls, SayWhoWaitedInWhat) {
  std::vector ranks{waiting_rank(0, 57, 300), working_rank(1, 56, 400), waiting_rank(2, 57, 250),
                    waiting_rank(3, 57, 250)};
  ranks[0].ended = true;  // of the lost peer
  const auto text = last_calls(ranks, 1);
  EXPECT_EQ(text,
            "rank 1 ended in backward of step 12; its last call was call #56, all_gather of 4096 "
            "float32 (step 12, sharded.cpp:120)\n"
            "ranks 0, 2, 3 waited for 0.3 s in call #57, all_gather of 4096 float32 (step 12, "
            "sharded.cpp:120)");
}

TEST(LastCalls, NameAMismatchAtOnce) {
  std::vector ranks{waiting_rank(0, 57, 10), waiting_rank(1, 57, 10)};
  ranks[1].board.calls.back().count = 8;
  ranks[1].ended = true;
  expect_parts(last_calls(ranks, 1), {"calls #57 do not match", "of 4096 float32", "of 8 float32",
                                      "its last call, which has not ended, was call #57"});
}

TEST(LastCalls, SayNothingOfRanksWithoutAPage) {
  EXPECT_EQ(last_calls(std::vector<RankView>(2), 0), "");
  EXPECT_EQ(last_calls({}, 0), "");
}

}  // namespace
}  // namespace skein::launch
