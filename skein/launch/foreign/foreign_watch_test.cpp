// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/foreign/foreign_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "skein/core/error.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a watch has said in the end.
class Saying {
 public:
  void say(const std::string& text, bool printed) {
    const std::lock_guard lock(mutex_);
    text_ = text;
    printed_ = printed;
    changed_.notify_all();
  }
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, seconds(30), [&] { return !text_.empty(); });
    return text_;
  }
  bool printed() const { return printed_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  bool printed_ = false;
};

// A rank that is well: in the middle of a step, nothing under way.
board::BoardView well(int rank) {
  return {
      .rank = rank, .pid = ::getpid(), .phase = board::Phase::kForward, .step = 3, .steps_here = 3};
}

ForeignWatchOptions watch_options(int rank, Saying& saying) {
  return {.rank = rank,
          .size = 2,
          .limits = {.heartbeat = milliseconds(300)},
          .interval = milliseconds(10),
          .board = [rank] { return well(rank); },
          .end = [&saying](const std::string& text, bool print) { saying.say(text, print); }};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ForeignWatch, RanksThatAreDoneSayNothing) {
  MemoryStore store;
  Saying first, second;
  auto options = watch_options(0, first);
  options.serves = true;
  ForeignWatch zero(store, options), one(store, watch_options(1, second));
  std::atomic<bool> one_left = false;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(100));
    one_left = true;
    one.leave();
  });
  zero.leave();
  EXPECT_TRUE(one_left);  // who serves the store goes last
  late.join();
  EXPECT_FALSE(store.try_get("watch/verdict"));
}

TEST(ForeignWatch, AFailureEndsTheOthers) {
  MemoryStore store;
  Saying first, second;
  ForeignWatch zero(store, watch_options(0, first)), one(store, watch_options(1, second));
  one.fail("disk full");
  EXPECT_TRUE(has(first.wait(), "rank 1 of 2")) << first.wait();
  EXPECT_TRUE(has(first.wait(), "disk full"));
  EXPECT_FALSE(first.printed());  // rank 1 has printed it
}

TEST(ForeignWatch, AStoppedRankIsFoundByRankZero) {
  MemoryStore store;
  Saying first;
  auto silent = well(1);
  silent.pid = 1 << 30;  // no such process
  ForeignWatch zero(store, watch_options(0, first));
  {
    Saying second;
    auto options = watch_options(1, second);
    options.board = [&] { return silent; };
    const ForeignWatch one(store, options);
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_TRUE(has(first.wait(), "rank 1")) << first.wait();
  EXPECT_TRUE(first.printed());
}

// What was heard of it last is up to a second old.
TEST(ForeignWatch, ADeadRankIsToldByTheBoardThatItLeft) {
  for (const bool same_process : {true, false}) {
    MemoryStore store;
    Saying first;
    auto heard = well(1);
    heard.pid = 1 << 30;  // no such process
    heard.step = 11;
    auto left = heard;
    left.step = 21;
    if (!same_process) left.pid += 1;  // another start's
    auto watching = watch_options(0, first);
    watching.board_left = [&](int rank) { return rank == 1 ? std::optional(left) : std::nullopt; };
    ForeignWatch zero(store, watching);
    {
      Saying second;
      auto options = watch_options(1, second);
      options.board = [&] { return heard; };
      const ForeignWatch one(store, options);
      std::this_thread::sleep_for(milliseconds(50));
    }
    const auto said = first.wait();
    EXPECT_TRUE(
        has(said, same_process ? "without a word in" : "without a word; it was last heard in"))
        << said;
    EXPECT_TRUE(has(said, same_process ? "step 21" : "step 11")) << said;
    EXPECT_EQ(has(said, "rank 1 ended in"), same_process) << said;
  }
}

TEST(ForeignWatch, ASilentRankZeroIsFoundByTheOthers) {
  MemoryStore store;
  Saying second;
  ForeignWatch one(store, watch_options(1, second));
  {
    Saying first;
    const ForeignWatch zero(store, watch_options(0, first));
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_TRUE(has(second.wait(), "rank 0 of 2")) << second.wait();
  EXPECT_TRUE(has(second.wait(), "no sign"));
}

// A store whose calls do what the test wants.
class BrokenStore final : public Store {
 public:
  explicit BrokenStore(std::function<void()> effect) : effect_(std::move(effect)) {}
  void set(const std::string& /*key*/, const std::string& /*value*/) override { effect_(); }
  std::optional<std::string> try_get(const std::string& /*key*/) override { return std::nullopt; }
  std::string get(const std::string& /*key*/, Duration /*timeout*/) override { return {}; }
  int64_t add(const std::string& /*key*/, int64_t /*amount*/) override { return 0; }
  bool erase(const std::string& /*key*/) override { return false; }

 private:
  std::function<void()> effect_;
};

TEST(ForeignWatch, ALostStoreEndsTheRank) {
  BrokenStore store([] { throw CommError("closed"); });
  Saying saying;
  ForeignWatch watch(store, watch_options(1, saying));
  EXPECT_TRUE(has(saying.wait(), "lost the ranks' store")) << saying.wait();
}

TEST(ForeignWatch, AStoreThatDoesNotAnswerEndsTheRank) {
  std::atomic<bool> blocked = true;
  BrokenStore store([&] { blocked.wait(true); });
  Saying saying;
  ForeignWatch watch(store, watch_options(1, saying));
  EXPECT_TRUE(has(saying.wait(), "has not answered")) << saying.wait();
  blocked = false;
  blocked.notify_all();
}

}  // namespace
}  // namespace skein::launch
