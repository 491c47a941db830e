// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/parallel/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::parallel {
namespace {

using Pass = Schedule::Pass;

// An embedding (unit 0), three blocks (1-3) and an untied head (4).
std::vector<Schedule::Unit> three_blocks() {
  return {{"embedding", true}, {"block 0"}, {"block 1"}, {"block 2"}, {"head", true}};
}

// What a schedule does, as words: g gather, w wait, d drop, r reduce, f finish; U is a use.
struct Trace {
  std::string text;
  Schedule schedule;

  explicit Trace(std::vector<Schedule::Unit> units = three_blocks(),
                 std::vector<int> order = {1, 2, 3})
      : schedule(std::move(units), std::move(order),
                 {.start_gather = [this](int u) { write('g', u); },
                  // Blocks that were waited for are used at once: "U" tells it.
                  .wait = [](int) {},
                  .drop = [this](int u) { write('d', u); },
                  .start_reduce = [this](int u) { write('r', u); },
                  .finish_reduce = [this](int u) { write('f', u); }}) {}

  void write(char what, int unit) { text += what + std::to_string(unit) + " "; }

  void use(int unit) {
    schedule.acquire(unit, Pass::kForward);
    schedule.expect_backward(unit);
    write('U', unit);
    schedule.release(unit, Pass::kForward);
  }
  void use_in_backward(int unit) {
    schedule.acquire(unit, Pass::kBackward);
    write('U', unit);
    schedule.release(unit, Pass::kBackward);
  }
  void forward(const std::vector<int>& units, bool differentiable_inputs = false) {
    schedule.begin_forward(/*gradients=*/true, differentiable_inputs);
    for (const int unit : units) use(unit);
    schedule.end_forward();
  }
  void backward(const std::vector<int>& units) {
    for (const int unit : units) use_in_backward(unit);
  }
  std::string take() { return std::exchange(text, {}); }

  // The collectives alone.
  std::string issued() const {
    std::istringstream words(text);
    std::string found;
    for (std::string word; words >> word;) {
      if (word[0] == 'g' || word[0] == 'r') found += word + " ";
    }
    return found;
  }
};

TEST(Schedule, GathersOneAheadAndReducesWhatIsComplete) {
  Trace trace;
  trace.schedule.begin_micro_batch();
  trace.forward({0, 1, 2, 3});
  trace.use(4);
  // The first block is on its way before the embedding runs, the last one stays whole.
  EXPECT_EQ(trace.take(), "g1 U0 g2 U1 d1 g3 U2 d2 U3 U4 ");
  trace.backward({4, 3, 2, 1, 0});
  EXPECT_EQ(trace.take(),
            "U4 r4 "           // the head's gradient is complete first
            "g2 U3 f4 r3 "     // block 2 without a second gather
            "d3 g1 U2 f3 r2 "  // one reduction under way
            "d2 U1 f2 r1 U0 f1 r0 ");
  trace.schedule.end_micro_batch();
  EXPECT_EQ(trace.take(), "f0 d1 ");
}

TEST(Schedule, PassesWithoutGradientsOnlyGather) {
  Trace trace;
  for (int pass = 0; pass < 2; ++pass) {
    trace.schedule.begin_forward(/*gradients=*/true, false);  // outside of a micro-batch: none
    trace.schedule.acquire(2, Pass::kForward);
    trace.schedule.release(2, Pass::kForward);
    trace.schedule.end_forward();
  }
  trace.schedule.drop_blocks();
  EXPECT_EQ(trace.text, "g1 g2 d1 g3 d2 d3 g1 g2 d1 g3 d2 d3 ");
}

TEST(Schedule, RanksThatUseDifferentUnitsIssueTheSame) {
  const auto issued = [](const std::vector<int>& forward, const std::vector<int>& backward) {
    Trace trace;
    trace.schedule.begin_micro_batch();
    trace.forward(forward);
    trace.backward(backward);
    trace.schedule.end_micro_batch();
    return trace.issued();
  };
  const std::string all = "g1 g2 g3 r4 g2 r3 g1 r2 r1 r0 ";
  EXPECT_EQ(issued({0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}), all);
  EXPECT_EQ(issued({}, {}), all);
  EXPECT_EQ(issued({2}, {2}), all);
  EXPECT_EQ(issued({0, 3, 4}, {4, 3, 0}), all);
  EXPECT_EQ(issued({1, 2, 3, 4}, {}), all);            // a step without backward
  EXPECT_EQ(issued({1, 1, 3, 3}, {3, 3, 1, 1}), all);  // twice in a row
  EXPECT_EQ(issued({0, 1, 2, 3, 4}, {2, 1}), all);     // the loss does not depend on the rest
}

TEST(Schedule, AFrozenBeginningIsGatheredOnce) {
  auto units = three_blocks();
  units[0].trainable = units[1].trainable = units[2].trainable = false;
  {
    Trace trace(units);
    trace.schedule.begin_micro_batch();
    trace.forward({3, 4});
    trace.backward({4, 3});
    trace.schedule.end_micro_batch();
    EXPECT_EQ(trace.issued(), "g1 g2 g3 r4 r3 ");
  }
  Trace trace(units);
  trace.schedule.begin_micro_batch();
  trace.forward({1, 2, 3}, /*differentiable_inputs=*/true);  // something trains before block 0
  trace.backward({3, 2, 1});
  trace.schedule.end_micro_batch();
  EXPECT_EQ(trace.issued(), "g1 g2 g3 r4 g2 r3 g1 ");
}

TEST(Schedule, AFrozenBlockAfterATrainableRootIsPassedThrough) {
  auto units = three_blocks();
  for (auto& unit : units) unit.trainable = unit.name == "embedding";
  Trace trace(units);
  trace.schedule.begin_micro_batch();
  trace.forward({0, 1, 2, 3});
  trace.backward({3, 2, 1, 0});
  trace.schedule.end_micro_batch();
  EXPECT_EQ(trace.issued(), "g1 g2 g3 g2 g1 r0 ");
}

// A tied root unit of which the final norm trains.
TEST(Schedule, AFrozenBodyBelowATrainableEndIsGatheredOnce) {
  const std::vector<Schedule::Unit> units{{"root", true, true, /*feeds_blocks=*/false},
                                          {"block 0", false, false},
                                          {"block 1", false, false},
                                          {"block 2", false, false}};
  Trace trace(units);
  trace.schedule.begin_micro_batch();
  trace.forward({});
  trace.use(0);
  trace.backward({0});
  trace.schedule.end_micro_batch();
  EXPECT_EQ(trace.issued(), "g1 g2 g3 r0 ");
}

TEST(Schedule, TwoPassesAreReducedWhenTheFirstIsLeft) {
  Trace trace;
  trace.schedule.begin_micro_batch();
  trace.forward({0, 1, 2, 3, 4});
  trace.forward({0, 1, 2, 3, 4});
  EXPECT_EQ(trace.issued(), "g1 g2 g3 g1 g2 g3 ");
  trace.take();
  trace.backward({4, 3, 2, 1, 0, 4, 3, 2, 1, 0});
  EXPECT_EQ(trace.issued(), "g2 g1 g3 r4 g2 r3 g1 r2 r1 r0 ");
  trace.schedule.end_micro_batch();
}

TEST(Schedule, ADeclaredOrderMayComeBackToABlock) {
  Trace trace({{"root", true}, {"a"}, {"b"}}, {1, 2, 1, 2});
  trace.schedule.begin_micro_batch();
  trace.forward({0, 1, 2, 1, 2});
  EXPECT_EQ(trace.issued(), "g1 g2 ");  // both stay whole, and one of them through the head
  trace.backward({2, 1, 2, 1, 0});
  EXPECT_EQ(trace.issued(), "g1 g2 g1 r2 r1 r0 ");
  trace.schedule.end_micro_batch();
}

TEST(Schedule, RefusesWhatTheListCannotServe) {
  const auto misuse = [](const std::function<void(Trace&)>& body) {
    Trace trace;
    trace.schedule.begin_micro_batch();
    return refusal<InternalError>([&] { body(trace); });
  };
  EXPECT_PRED2(contains, misuse([](Trace& t) { t.forward({1, 2, 1}); }),
               "unit 'block 0' is used after later blocks");
  EXPECT_PRED2(contains, misuse([](Trace& t) { t.use(2); }),
               "unit 'block 1' is used outside of a forward pass");
  EXPECT_PRED2(contains, misuse([](Trace& t) {
                 t.forward({1, 2, 3});
                 t.backward({3});
                 t.forward({1});
               }),
               "a forward pass begins after backward has begun");
  EXPECT_PRED2(contains, misuse([](Trace& t) {
                 t.forward({0, 3, 4});
                 t.backward({3, 4});
               }),
               "unit 'head' is reached by backward after its gradient was sent");
  EXPECT_PRED2(contains, misuse([](Trace& t) {
                 t.forward({1, 3});
                 t.backward({1, 3});
               }),
               "unit 'block 2' is reached by backward after its gradient was sent");
  EXPECT_PRED2(contains, misuse([](Trace& t) { t.backward({2}); }),
               "no forward of this micro-batch has used it");
  EXPECT_PRED2(contains, misuse([](Trace& t) {
                 t.schedule.begin_forward(/*gradients=*/false, false);
                 t.use(1);
               }),
               "unit 'block 0' runs with gradients in a forward pass that began without them");
  Trace idle;
  EXPECT_PRED2(contains, refusal<InternalError>([&] { idle.use(4); }), "outside of a micro-batch");
  EXPECT_PRED2(contains, refusal<InternalError>([] { const Trace trace(three_blocks(), {1, 2}); }),
               "unit 'block 2' the order of forward must hold every block");
}

// Whatever a rank uses, in one order of turns: the same collectives, at most two blocks whole, and
// no reduction before the unit's last use.
TEST(Schedule, HoldsForDrawnUses) {
  const char* seed = std::getenv("SKEIN_SEED");  // printed by tools/run_tests.py
  std::mt19937 draw(seed == nullptr ? 0 : static_cast<unsigned>(std::stoul(seed)));
  const auto coin = [&](int sides) {
    return static_cast<int>(draw() % static_cast<unsigned>(sides));
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Schedule::Unit> units{{"root", true, coin(2) == 0}};
    for (int i = 1; i <= 4; ++i) units.push_back({"block", false, coin(3) > 0});
    units.push_back({"head", true, coin(2) == 0});
    std::vector<int> order{1, 2, 3, 4};
    for (int extra = coin(4); extra > 0; --extra) order.push_back(1 + coin(4));
    const int passes = 1 + coin(3);
    std::string expected;
    for (int rank = 0; rank < 4; ++rank) {
      Trace trace(units, order);
      trace.schedule.begin_micro_batch();
      std::vector<int> used;
      for (int pass = 0; pass < passes; ++pass) {
        std::vector<int> uses;
        for (const int unit : order) {
          for (int times = coin(3); times > 0; --times) uses.push_back(unit);
        }
        trace.forward(uses, /*differentiable_inputs=*/true);
        used.insert(used.end(), uses.begin(), uses.end());
      }
      if (coin(4) > 0) {
        std::ranges::reverse(used);
        trace.backward(used);
      }
      trace.schedule.end_micro_batch();
      if (rank == 0) expected = trace.issued();
      ASSERT_EQ(trace.issued(), expected) << round;
      int whole = 0;
      std::istringstream words(trace.text);
      for (std::string word; words >> word;) {
        whole += word[0] == 'g' ? 1 : word[0] == 'd' ? -1 : 0;
        ASSERT_LE(whole, 2) << trace.text;
      }
      ASSERT_EQ(whole, 0) << trace.text;
    }
  }
}

}  // namespace
}  // namespace skein::parallel
