// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/coordinator.h"

#include <gtest/gtest.h>

#include <csignal>
#include <functional>

namespace skein::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two nodes with two ranks each, moved by hand.
struct CoordinatorTest : testing::Test {
  Time now = Time(seconds(1000));
  CoordinatorOptions options{.nodes = 2};
  std::vector<NodeStatus> nodes;
  std::optional<Coordinator> coordinator;

  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      NodeStatus status;
      status.node = i;
      status.nodes = 2;
      status.host = i == 0 ? "alpha" : "beta";
      status.pid = 100 + i;
      status.local_ranks = 2;
      NodeIdentity identity;
      identity.node = i;
      identity.host = status.host;
      identity.local_ranks = 2;
      status.identity = identity;
      nodes.push_back(status);
    }
    coordinator.emplace(options, now);
  }

  void use(const CoordinatorOptions& other) {
    options = other;
    coordinator.emplace(options, now);
  }
  const NodeCommand& decide() { return coordinator->decide(now); }
  const NodeCommand& tell_and_decide() {
    for (const auto& node : nodes) coordinator->take(node, now);
    return decide();
  }
  const NodeCommand& advance(milliseconds time) {
    now += time;
    return tell_and_decide();
  }
  // Node 0 goes on without a word from the other.
  const NodeCommand& advance_alone(milliseconds time) {
    for (; time > milliseconds(0); time -= milliseconds(100)) {
      now += std::min(time, milliseconds(100));
      coordinator->take(nodes[0], now);
      decide();
    }
    return decide();
  }
  void start_ranks(uint64_t generation = 0) {
    for (auto& node : nodes) {
      node.identity.reset();
      node.generation = generation;
      node.ranks.clear();
      for (int i = 0; i < 2; ++i) {
        RankStatus rank;
        rank.view.board.rank = 2 * node.node + i;
        rank.view.board.pid = rank.pid = 1000 + rank.view.board.rank;
        rank.view.board.phase = board::Phase::kForward;
        rank.view.host = node.host;
        node.ranks.push_back(rank);
      }
    }
  }
  void run_ranks() {
    ASSERT_EQ(tell_and_decide().order, Order::kRun);
    start_ranks();
    ASSERT_EQ(tell_and_decide().order, Order::kRun);
  }
  RankStatus& rank(int number) {
    return nodes[static_cast<size_t>(number / 2)].ranks[static_cast<size_t>(number % 2)];
  }
  void end(int number, ChildEnd how, bool ours = false) {
    rank(number).end = how;
    rank(number).view.ended = true;
    rank(number).ours = ours;
  }
  void end_all(ChildEnd how, bool ours) {
    for (int i = 0; i < 4; ++i) {
      if (!rank(i).end) end(i, how, ours);
    }
  }
  // The ranks that are left end so, and that is the end of the run.
  void end_with(int code, ChildEnd how, bool ours = true) {
    end_all(how, ours);
    tell_and_decide();
    ASSERT_TRUE(coordinator->outcome());
    EXPECT_EQ(coordinator->outcome()->code, code);
  }
};

TEST_F(CoordinatorTest, StartsWhenAllHaveMet) {
  coordinator->take(nodes[0], now);
  EXPECT_EQ(decide().order, Order::kWait);
  EXPECT_EQ(coordinator->missing_nodes(), std::vector<int>{1});
  nodes[1].identity.reset();  // it still prepares its data
  coordinator->take(nodes[1], now);
  EXPECT_EQ(decide().order, Order::kWait);
  EXPECT_TRUE(coordinator->missing_nodes().empty());
  nodes[1].identity = nodes[0].identity;
  nodes[1].identity->node = 1;
  const auto& command = tell_and_decide();
  EXPECT_EQ(command.order, Order::kRun);
  EXPECT_EQ(command.first_ranks, (std::vector<int>{0, 2, 4}));
}

TEST_F(CoordinatorTest, ANodeThatNeverComesIsNamed) {
  coordinator->take(nodes[0], now);
  now += options.join_timeout + milliseconds(1);
  decide();
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->code, 3);
  EXPECT_NE(coordinator->outcome()->message.find("node 1 has not joined"), std::string::npos);
}

TEST_F(CoordinatorTest, DifferentNodesAreRefused) {
  nodes[1].identity->binary = "another";
  tell_and_decide();
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->code, 2);
  EXPECT_FALSE(coordinator->outcome()->can_restart);
}

TEST_F(CoordinatorTest, DifferentNumbersOfNodesAreRefused) {
  nodes[1].nodes = 3;
  tell_and_decide();
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->code, 2);
  EXPECT_NE(coordinator->outcome()->message.find("--nnodes"), std::string::npos);
}

TEST_F(CoordinatorTest, AProblemOfOneNodeEndsAllWithItsCode) {
  nodes[1].problem = "no data";
  nodes[1].problem_code = 4;
  tell_and_decide();
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->code, 4);
  EXPECT_EQ(coordinator->outcome()->message, "node 1 (beta): no data");
}

TEST_F(CoordinatorTest, AllDoneIsDone) {
  run_ranks();
  end(0, {.code = 0});
  EXPECT_EQ(advance(milliseconds(100)).order, Order::kRun);
  ASSERT_NO_FATAL_FAILURE(end_with(0, {.code = 0}, /*ours=*/false));
  EXPECT_FALSE(coordinator->outcome()->failure);
}

TEST_F(CoordinatorTest, ADeathEndsAllNodesAndThenIsReported) {
  run_ranks();
  end(3, {.signal = SIGSEGV});
  rank(3).view.board.message = "it hurts";
  EXPECT_EQ(tell_and_decide().order, Order::kEnd);
  EXPECT_FALSE(decide().at_once);
  EXPECT_FALSE(coordinator->outcome()) << "ranks still run";
  end_all({.signal = SIGTERM}, /*ours=*/true);
  advance(milliseconds(100));
  ASSERT_TRUE(coordinator->outcome());
  const auto& outcome = *coordinator->outcome();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.node, 1);
  EXPECT_TRUE(outcome.can_restart);
  ASSERT_TRUE(outcome.failure);
  EXPECT_EQ(outcome.failure->rank, 3);
  EXPECT_EQ(outcome.failure->size, 4);
  EXPECT_EQ(outcome.failure->host, "beta");
  EXPECT_EQ(outcome.failure->message, "it hurts");
}

TEST_F(CoordinatorTest, ARestartIsANewGeneration) {
  run_ranks();
  end(0, {.code = 4});
  tell_and_decide();
  end_all({.signal = SIGTERM}, /*ours=*/true);
  tell_and_decide();
  ASSERT_TRUE(coordinator->outcome());
  coordinator->restart();
  EXPECT_FALSE(coordinator->outcome());
  const auto& command = tell_and_decide();  // with what is left of the generation before
  EXPECT_EQ(command.order, Order::kRun);
  EXPECT_EQ(command.generation, 1U);
  EXPECT_TRUE(command.continues);
  start_ranks(1);
  EXPECT_EQ(tell_and_decide().order, Order::kRun);
  end_with(0, {.code = 0}, /*ours=*/false);
}

TEST_F(CoordinatorTest, WantOfMemoryBeforeTheSecondUpdateIsTold) {
  const auto outcome_of = [&](const std::function<void(RankStatus&)>& change, ChildEnd how) {
    use(options);
    nodes.clear();
    SetUp();
    run_ranks();
    change(rank(1));
    end(1, how);
    end(2, {.code = 3});
    tell_and_decide();
    end_all({.signal = SIGTERM}, /*ours=*/true);
    tell_and_decide();
    return coordinator->outcome().value();
  };
  const auto full = [](RankStatus& rank) { rank.view.board.out_of_memory = true; };
  const auto found = outcome_of(full, {.code = 2});
  EXPECT_TRUE(found.out_of_memory);
  EXPECT_FALSE(found.can_restart);
  EXPECT_EQ(found.code, 2);
  EXPECT_FALSE(outcome_of([](RankStatus&) {}, {.code = 2}).out_of_memory);
  const auto later = [&](RankStatus& rank) { full(rank), rank.view.board.steps_here = 1; };
  EXPECT_FALSE(outcome_of(later, {.code = 2}).out_of_memory);
  const auto evaluating = [&](RankStatus& rank) {
    full(rank), rank.view.board.phase = board::Phase::kEvaluate;
  };
  EXPECT_FALSE(outcome_of(evaluating, {.code = 2}).out_of_memory);
  const auto counted = [](RankStatus& rank) { rank.oom_counted = true; };
  EXPECT_TRUE(outcome_of(counted, {.signal = SIGKILL}).out_of_memory);
  EXPECT_FALSE(outcome_of(counted, {.signal = SIGSEGV}).out_of_memory);
  // Whoever has asked for a stop is told to come back.
  const auto stopping = [&](RankStatus& rank) {
    full(rank);
    nodes[0].stop_signal = SIGTERM;
    tell_and_decide();
  };
  const auto stopped = outcome_of(stopping, {.code = 2});
  EXPECT_EQ(stopped.code, 75);
  EXPECT_FALSE(stopped.out_of_memory);
  EXPECT_NE(stopped.message.find("ran out of memory: start again"), std::string::npos);
  nodes[0].stop_signal = 0;
  outcome_of(full, {.code = 2});

  coordinator->give_up("per_device_train_batch_size=4");
  coordinator->restart();
  EXPECT_EQ(tell_and_decide().given_up, "per_device_train_batch_size=4");
}

// Generation 1 begins when the lost node has been started again and both have been compared.
TEST_F(CoordinatorTest, ALostNodeThatComesBackGoesOnWithTheOthers) {
  run_ranks();
  const auto gone = nodes[1];
  coordinator->note_closed(1, now);
  advance_alone(seconds(2));
  end(0, {.signal = SIGKILL}, /*ours=*/true);
  end(1, {.signal = SIGKILL}, /*ours=*/true);
  advance_alone(milliseconds(100));
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_TRUE(coordinator->outcome()->can_restart);
  EXPECT_EQ(coordinator->lost_nodes(), std::vector<int>{1});
  coordinator->restart();
  EXPECT_EQ(advance_alone(seconds(60)).order, Order::kWait);
  EXPECT_EQ(coordinator->missing_nodes(), std::vector<int>{1});
  EXPECT_TRUE(coordinator->lost_nodes().empty());

  coordinator->note_admitted(1, now);
  nodes[1].pid = 999;
  nodes[1].ranks.clear();
  EXPECT_EQ(advance(milliseconds(100)).order, Order::kWait) << "it still prepares its data";
  nodes[1].identity.emplace();
  nodes[1].identity->node = 1;
  nodes[1].identity->host = "beta";
  nodes[1].identity->local_ranks = 2;
  const auto& command = advance(milliseconds(100));
  EXPECT_EQ(command.order, Order::kRun);
  EXPECT_EQ(command.generation, 1U);
  EXPECT_TRUE(command.continues);
  start_ranks(1);
  EXPECT_EQ(tell_and_decide().order, Order::kRun);
  end_all({.code = 0}, false);
  tell_and_decide();
  EXPECT_EQ(coordinator->outcome()->code, 0);
}

// A node that comes back as another one (other data, another program) is sent away, and the right
// one is waited for.
TEST_F(CoordinatorTest, ANodeThatComesBackIsComparedAgain) {
  const auto right = nodes[1];
  run_ranks();
  coordinator->note_admitted(1, now);  // before the old one was missed
  EXPECT_EQ(decide().order, Order::kEnd);
  EXPECT_TRUE(decide().at_once);
  nodes[1].ranks.clear();
  nodes[1].identity.emplace();
  nodes[1].identity->node = 1;
  nodes[1].identity->binary = "another";
  for (int i : {0, 1}) end(i, {.signal = SIGKILL}, /*ours=*/true);
  tell_and_decide();
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_TRUE(coordinator->outcome()->can_restart);
  EXPECT_NE(coordinator->outcome()->message.find("node 1"), std::string::npos);
  coordinator->restart();
  const auto& command = tell_and_decide();
  EXPECT_EQ(command.order, Order::kWait);
  ASSERT_TRUE(command.refused.contains(1));
  EXPECT_NE(command.refused.at(1).find("another build"), std::string::npos);
  EXPECT_EQ(advance(seconds(1)).refused.size(), 1U) << "it may not have heard yet";
  EXPECT_FALSE(coordinator->outcome());
  EXPECT_EQ(coordinator->missing_nodes(), std::vector<int>{1});

  coordinator->note_closed(1, now);
  EXPECT_TRUE(decide().refused.empty());
  EXPECT_EQ(coordinator->lost_nodes(), std::vector<int>{1}) << "its place is free";
  for (const bool fits : {false, true}) {
    coordinator->note_admitted(1, now);
    nodes[1] = right;
    if (!fits) nodes[1].problem = "no data";
    EXPECT_EQ(tell_and_decide().refused.contains(1), !fits);
    if (!fits) advance_alone(seconds(4));  // it has gone without a word
  }
  EXPECT_EQ(command.order, Order::kRun);
  EXPECT_EQ(command.generation, 1U);
  EXPECT_FALSE(coordinator->outcome());
}

TEST_F(CoordinatorTest, ALostNodeHasTheTimeToJoinToComeBack) {
  run_ranks();
  advance_alone(seconds(4));
  for (int i : {0, 1}) end(i, {.signal = SIGKILL}, /*ours=*/true);
  advance_alone(milliseconds(100));
  ASSERT_TRUE(coordinator->outcome());
  coordinator->restart();
  advance_alone(options.join_timeout - seconds(1));
  EXPECT_FALSE(coordinator->outcome());
  advance_alone(seconds(2));
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->code, 3);
  EXPECT_FALSE(coordinator->outcome()->can_restart);
}

TEST_F(CoordinatorTest, TheCauseIsWaitedFor) {
  run_ranks();
  end(0, {.code = 3});
  EXPECT_EQ(tell_and_decide().order, Order::kRun) << "a rank that lost its peer";
  rank(0).end_ms = 600;
  end(2, {.code = 4});
  EXPECT_EQ(advance(milliseconds(600)).order, Order::kEnd);
  end_all({.signal = SIGKILL}, /*ours=*/true);
  tell_and_decide();
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->failure->rank, 2);
  EXPECT_EQ(coordinator->outcome()->code, 4);
}

TEST_F(CoordinatorTest, OnlySymptomsAreReportedAfterTheWindow) {
  run_ranks();
  end(1, {.code = 3});
  EXPECT_EQ(tell_and_decide().order, Order::kRun);
  rank(1).end_ms = 1001;
  EXPECT_EQ(advance(milliseconds(1001)).order, Order::kEnd);
}

// While a cause is waited for, the others may end as well: that is not done.
TEST_F(CoordinatorTest, AllFailedAtOnceIsReportedToo) {
  for (const auto how : {ChildEnd{.code = 3}, ChildEnd{.signal = SIGTERM}}) {
    nodes.clear();
    SetUp();
    run_ranks();
    end_all(how, /*ours=*/false);
    EXPECT_EQ(tell_and_decide().order, Order::kRun);
    EXPECT_FALSE(coordinator->outcome());
    for (int i = 0; i < 4; ++i) rank(i).end_ms = 1001;
    EXPECT_EQ(advance(milliseconds(1001)).order, Order::kEnd);
    tell_and_decide();
    ASSERT_TRUE(coordinator->outcome());
    EXPECT_EQ(coordinator->outcome()->code, how.code == 3 ? 3 : 1);
    EXPECT_TRUE(coordinator->outcome()->failure);
  }
}

TEST_F(CoordinatorTest, ASilentNodeIsLostForThisGeneration) {
  run_ranks();
  EXPECT_EQ(advance_alone(options.node_silence / 2).order, Order::kRun);
  end(0, {.code = 3});  // because of the node that nobody misses yet
  rank(0).end_ms = 1400;
  EXPECT_EQ(advance_alone(options.node_silence / 2).order, Order::kRun)
      << "a silent node may be the cause";
  EXPECT_EQ(advance_alone(milliseconds(1)).order, Order::kEnd);
  EXPECT_TRUE(decide().at_once);
  end(1, {.signal = SIGKILL}, /*ours=*/true);
  coordinator->take(nodes[0], now);
  decide();
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->code, 3);
  EXPECT_TRUE(coordinator->outcome()->can_restart) << "with another launcher in its place";
  EXPECT_NE(coordinator->outcome()->message.find("node 1 (beta)"), std::string::npos);
  coordinator->take(nodes[1], now);  // it comes back: too late
  coordinator->quit(3, "");
  EXPECT_TRUE(coordinator->all_have_left());
}

TEST_F(CoordinatorTest, ANodeWhoseConnectionClosedMayComeBack) {
  run_ranks();
  coordinator->note_closed(1, now);
  EXPECT_EQ(advance_alone(milliseconds(900)).order, Order::kRun);
  EXPECT_EQ(advance(milliseconds(100)).order, Order::kRun) << "it is back";
  EXPECT_EQ(advance_alone(milliseconds(1100)).order, Order::kRun) << "no more than silent";
  tell_and_decide();
  coordinator->note_closed(1, now);
  EXPECT_EQ(advance_alone(milliseconds(1100)).order, Order::kEnd) << "sooner than by silence";
}

TEST_F(CoordinatorTest, APauseOfTheMachineIsNobodysFault) {
  run_ranks();
  now += seconds(60);
  coordinator->take(nodes[0], now);
  EXPECT_EQ(decide().order, Order::kRun);
  EXPECT_EQ(advance_alone(options.node_silence + milliseconds(100)).order, Order::kEnd);
}

TEST_F(CoordinatorTest, AStopReachesAllNodesAndIsNoFailure) {
  run_ranks();
  nodes[1].stop_signal = SIGTERM;
  EXPECT_TRUE(tell_and_decide().stop);
  EXPECT_EQ(decide().order, Order::kRun);
  end_with(75, {.code = 75}, /*ours=*/false);
}

TEST_F(CoordinatorTest, ARankThatDiesOfTheStopIsNoFailure) {
  run_ranks();
  nodes[0].stop_signal = SIGTERM;
  tell_and_decide();
  end(0, {.signal = SIGTERM}, /*ours=*/true);
  end(1, {.code = 3});  // its peer is gone
  EXPECT_EQ(tell_and_decide().order, Order::kEnd);
  end_with(75, {.signal = SIGTERM});
}

TEST_F(CoordinatorTest, ARankThatIsAskedBesideItsLauncherIsNoFailure) {
  run_ranks();
  end(1, {.signal = SIGTERM});  // a batch system asks all processes of a job, the rank first
  EXPECT_EQ(tell_and_decide().order, Order::kRun);
  nodes[0].stop_signal = SIGTERM;
  EXPECT_EQ(tell_and_decide().order, Order::kEnd);
  end_with(75, {.signal = SIGTERM});
}

TEST_F(CoordinatorTest, ARankThatIsTerminatedAloneHasFailed) {
  run_ranks();
  end(1, {.signal = SIGTERM});
  tell_and_decide();
  rank(1).end_ms = options.root_cause_window.count();
  EXPECT_EQ(advance(options.root_cause_window).order, Order::kEnd);
  end_with(1, {.signal = SIGKILL});
}

TEST_F(CoordinatorTest, AStopThatNobodyObeysEnds) {
  run_ranks();
  nodes[0].stop_signal = SIGTERM;
  tell_and_decide();
  for (int i = 0; i < 4; ++i) rank(i).view.board.progress_ms = i == 2 ? 31'000 : 30'000;
  now += options.stop_grace;
  rank(3).view.board.progress_ms = 10;
  EXPECT_EQ(tell_and_decide().order, Order::kRun) << "one rank still works";
  rank(3).view.board.progress_ms = 30'000;
  advance(milliseconds(500));
  EXPECT_EQ(advance(milliseconds(500)).order, Order::kEnd);
  ASSERT_NO_FATAL_FAILURE(end_with(3, {.signal = SIGKILL}));
  EXPECT_FALSE(coordinator->outcome()->can_restart);
}

TEST_F(CoordinatorTest, AStopThatARankCannotObeyNamesIt) {
  use({.nodes = 2, .stop_grace = milliseconds(3'000)});
  run_ranks();
  nodes[0].stop_signal = SIGTERM;
  tell_and_decide();
  for (int i = 0; i < 4; ++i) rank(i).view.board.progress_ms = 3'500;
  rank(2).view.process_state = 'T';
  rank(2).view.board.beat_ms = 3'500;
  now += options.stop_grace;
  tell_and_decide();
  EXPECT_EQ(advance(milliseconds(500)).order, Order::kEnd);
  ASSERT_NO_FATAL_FAILURE(end_with(3, {.signal = SIGKILL}));
  const auto verdict = coordinator->outcome()->failure->verdict;
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 2);
  EXPECT_EQ(verdict->trouble, Trouble::kStopped) << verdict->text;
}

TEST_F(CoordinatorTest, TheSecondInterruptEndsAtOnce) {
  run_ranks();
  nodes[1].stop_signal = SIGINT;
  nodes[1].interrupted = true;
  EXPECT_EQ(tell_and_decide().order, Order::kEnd);
  EXPECT_TRUE(decide().at_once);
  end_with(130, {.signal = SIGKILL});
}

TEST_F(CoordinatorTest, AStoppedProcessIsFound) {
  run_ranks();
  for (int i = 0; i < 4; ++i) rank(i).view.board.beat_ms = 50;
  rank(1).view.process_state = 'T';
  rank(1).view.board.beat_ms = 60'000;
  tell_and_decide();
  EXPECT_EQ(advance(milliseconds(500)).order, Order::kRun) << "seen once";
  EXPECT_EQ(advance(milliseconds(500)).order, Order::kEnd);
  EXPECT_TRUE(decide().at_once);
  ASSERT_NO_FATAL_FAILURE(end_with(3, {.signal = SIGKILL}));
  ASSERT_TRUE(coordinator->outcome()->failure);
  ASSERT_TRUE(coordinator->outcome()->failure->verdict);
  EXPECT_EQ(coordinator->outcome()->failure->verdict->rank, 1);
  EXPECT_TRUE(coordinator->outcome()->can_restart);
}

TEST_F(CoordinatorTest, ARankThatDoesNotEndIsNamed) {
  run_ranks();
  end(1, {.code = 4});
  EXPECT_EQ(tell_and_decide().order, Order::kEnd);
  end_all({.signal = SIGKILL}, /*ours=*/true);
  rank(2).end.reset();
  rank(2).pid = 4711;
  rank(2).view.process_state = 'D';
  for (int i = 0; i < 59; ++i) advance(seconds(1));
  EXPECT_FALSE(coordinator->outcome());
  advance(seconds(1));
  ASSERT_TRUE(coordinator->outcome());
  EXPECT_EQ(coordinator->outcome()->code, 4);
  EXPECT_FALSE(coordinator->outcome()->can_restart);
  EXPECT_EQ(coordinator->outcome()->remains.find("rank 2 on "), 0U)
      << coordinator->outcome()->remains;
  EXPECT_NE(coordinator->outcome()->remains.find("(pid 4711, state D, blocked in the kernel"),
            std::string::npos);
}

TEST_F(CoordinatorTest, StatesCrossTheWireWhole) {
  start_ranks(3);
  end(1, {.signal = SIGKILL}, true);
  rank(1).view.board.message = "bytes \xff that are no text";
  rank(1).oom_counted = true;
  rank(1).logs = "log";
  rank(1).view.board.calls = {{.sequence = 7, .operation = "all_gather", .count = 4096}};
  nodes[0].stop_signal = SIGTERM;
  const auto copy = decode_status(encode(nodes[0]));
  ASSERT_TRUE(copy);
  EXPECT_EQ(encode(*copy), encode(nodes[0]));
  EXPECT_EQ(copy->ranks.at(1).view.board.calls.at(0).operation, "all_gather");
  EXPECT_EQ(copy->ranks.at(1).end->signal, SIGKILL);
  EXPECT_EQ(copy->generation, 3U);
  const NodeCommand command{.order = Order::kEnd,
                            .generation = 2,
                            .first_ranks = {0, 2, 4},
                            .continues = true,
                            .given_up = "seed=1",
                            .stop = true,
                            .at_once = true,
                            .refused = {{1, "because"}},
                            .code = 3,
                            .message = "why"};
  EXPECT_EQ(decode_command(encode(command)), command);
  for (const char* text : {"", "{}", "[1]", "{\"order\": \"x\"}"}) {
    EXPECT_FALSE(decode_status(text));
    EXPECT_FALSE(decode_command(text));
  }
}

}  // namespace
}  // namespace skein::launch
