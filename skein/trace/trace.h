// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does this process do, and when? Spans of time, for chrome://tracing and Perfetto.
//
// Nothing is recorded, and a span costs one load, but between begin() and end(). There is one
// recording at a time; spans come from all threads. One that began before the recording, or ends
// after it, is not in it.
//
//   const auto since = trace::now();
//   …
//   if (since) trace::add("unit", name, since);

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::trace {

// Where the host only queues work, its own clock says little. Called by one thread at a time.
class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  // Puts a mark behind what the calling thread has queued; returns its number.
  virtual size_t mark() = 0;
  // When the device came to it, in microseconds since the recording began. Waits for it.
  virtual double microseconds(size_t mark) = 0;
};

struct Options {
  std::shared_ptr<DeviceClock> device;  // null: the host's clock alone
  size_t max_spans = 100'000;           // what comes later is counted and left out, but kEssential
};

enum class Clock {
  kHost,
  kDevice,  // the device's too, where there is one
};

enum class Weight {
  kDetail,
  kEssential,  // few, and sums are made of them: the limit on spans does not count them
};

// A moment of a recording; false where nothing was recorded.
struct Point {
  int64_t recording = 0;
  int64_t nanoseconds = 0;  // of the host's clock
  std::optional<size_t> mark;
  Weight weight = Weight::kDetail;

  explicit operator bool() const { return recording != 0; }
};

enum class Shape {
  kNested,    // inside what the thread does around it
  kFloating,  // beside it: a collective under way
};

struct Event {
  std::string name;
  const char* category = "";
  Shape shape = Shape::kNested;
  int thread = 0;          // 0: the one that began the recording
  bool on_device = false;  // else on the host; a span with both clocks is two events
  double begin = 0;        // microseconds since the recording began
  double duration = 0;
};

struct Recording {
  std::vector<Event> events;
  double duration = 0;       // microseconds, of the host's clock
  int64_t num_left_out = 0;  // spans beyond max_spans

  // Of all events of that category and name; the device's where there are any.
  double microseconds(std::string_view category, std::string_view name) const;
  bool has_device() const;
};

bool is_recording();
void begin(Options options);
// Waits for the device.
Recording end();
// Ends it without a result, if there is one.
void discard() noexcept;

Point now(Clock clock = Clock::kDevice, Weight weight = Weight::kDetail);
// From `since` to now, with the same clocks and weight. `category` must be a literal.
void add(const char* category, std::string name, const Point& since, Shape shape = Shape::kNested);

// A block of code.
class Scope {
 public:
  Scope(const char* category, const char* name, Clock clock = Clock::kHost)
      : category_(category), name_(name), since_(now(clock)) {}
  ~Scope() {
    if (since_) add(category_, name_, since_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const char* category_;
  const char* name_;
  Point since_;
};

// Chrome's JSON. The process is called and numbered by the rank, so that files of several can be
// opened as one.
std::string to_json(const Recording& recording, int rank);

}  // namespace skein::trace
