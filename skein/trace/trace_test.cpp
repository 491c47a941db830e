// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/trace/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace skein::trace {
namespace {

// Comes to mark k after k milliseconds.
class SlowClock final : public DeviceClock {
 public:
  size_t mark() override { return next_++; }
  double microseconds(size_t mark) override { return 1000.0 * static_cast<double>(mark); }

 private:
  size_t next_ = 0;
};

TEST(Trace, HoldsWhatBeganAndEndedWithinTheRecording) {
  const auto before = now();
  EXPECT_FALSE(before);
  {
    const Scope unseen("work", "unseen");
  }
  begin({});
  EXPECT_TRUE(is_recording());
  if (before) add("work", "began before", before);
  const auto open = now();
  {
    const Scope outer("work", "outer");
    const Scope inner("work", "inner");
  }
  std::thread([] { const Scope scope("work", "elsewhere"); }).join();
  const auto recording = end();
  EXPECT_FALSE(is_recording());
  add("work", "ends after", open);

  ASSERT_EQ(recording.events.size(), 3);
  const auto &inner = recording.events[0], &outer = recording.events[1];
  EXPECT_EQ(inner.name, "inner");
  EXPECT_EQ(outer.name, "outer");
  EXPECT_LE(outer.begin, inner.begin);
  EXPECT_GE(outer.begin + outer.duration, inner.begin + inner.duration);
  EXPECT_LE(outer.begin + outer.duration, recording.duration);
  EXPECT_EQ(outer.thread, 0);
  EXPECT_EQ(recording.events[2].thread, 1);
  EXPECT_FALSE(recording.has_device());

  begin({});
  {
    const Scope scope("work", "thrown away");
  }
  discard();
  EXPECT_FALSE(is_recording());
  begin({});
  add("work", "of another recording", open);
  EXPECT_TRUE(end().events.empty());
}

TEST(Trace, ADeviceHasAClockOfItsOwn) {
  begin({.device = std::make_shared<SlowClock>()});
  const auto first = now();  // mark 0
  std::optional<Scope> on_host(std::in_place, "work", "on the host");
  on_host.reset();            // no mark
  const auto second = now();  // mark 1
  add("phase", "b", second);  // mark 2
  add("phase", "a", first);   // mark 3
  const auto recording = end();
  ASSERT_EQ(recording.events.size(), 5);
  EXPECT_TRUE(recording.has_device());
  EXPECT_EQ(recording.microseconds("phase", "a"), 3000);
  EXPECT_EQ(recording.microseconds("phase", "b"), 1000);
  EXPECT_GT(recording.microseconds("work", "on the host"), 0);
  EXPECT_EQ(recording.microseconds("work", "a"), 0);
}

TEST(Trace, IsBounded) {
  begin({.max_spans = 10});
  for (int i = 0; i < 25; ++i) const Scope scope("work", "many");
  const auto recording = end();
  EXPECT_EQ(recording.events.size(), 10);
  EXPECT_EQ(recording.num_left_out, 15);
}

// Sums of phases are whole however many details there are; the device marks no more than is kept.
TEST(Trace, WhatIsEssentialIsBeyondTheLimit) {
  const auto device = std::make_shared<SlowClock>();
  begin({.device = device, .max_spans = 2});
  for (int i = 0; i < 5; ++i) {
    const auto phase = now(Clock::kDevice, Weight::kEssential);
    for (int k = 0; k < 3; ++k) const Scope detail("work", "detail", Clock::kDevice);
    add("phase", "forward", phase);
  }
  const auto recording = end();
  EXPECT_EQ(recording.num_left_out, 13);
  EXPECT_EQ(recording.events.size(), 2 * (5 + 2U));
  EXPECT_EQ(recording.microseconds("phase", "forward"), 1000 * (5 + 4));
  EXPECT_EQ(device->mark(), 2 * (5 + 2U));
}

TEST(Trace, IsJsonThatChromeReads) {
  begin({.device = std::make_shared<SlowClock>(), .max_spans = 3});
  const auto since = now();
  add("unit", "a \"quoted\" name\n", since);
  add("collective", "all_gather", since, Shape::kFloating);
  add("phase", "forward", since);
  add("phase", "left out", since);
  const auto json = nlohmann::json::parse(to_json(end(), 3));
  EXPECT_EQ(json["otherData"]["spans_left_out"], 1);
  std::map<std::string, int> kinds;
  for (const auto& event : json["traceEvents"]) {
    EXPECT_EQ(event["pid"], 3);
    ++kinds[event["ph"]];
    EXPECT_GE(event.value("dur", 0.0), 0);
    EXPECT_GE(event.value("ts", 0.0), 0);
  }
  // Two rows and the process have names; two spans on two clocks; one floating span on two.
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"M", 3}, {"X", 4}, {"b", 2}, {"e", 2}}));
  begin({});
  EXPECT_TRUE(nlohmann::json::parse(to_json(end(), 0)).contains("traceEvents"));
}

}  // namespace
}  // namespace skein::trace
