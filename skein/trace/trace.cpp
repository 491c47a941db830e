// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "skein/core/error.h"

namespace skein::trace {
namespace {

struct Span {
  std::string name;
  const char* category;
  Shape shape;
  int thread;
  Point begin, end;
};

struct Recorder {
  std::atomic<int64_t> current = 0;  // number of the recording under way; 0: none
  std::mutex mutex;                  // of all that follows
  int64_t last = 0;
  Options options;
  int64_t start = 0;
  std::vector<Span> spans;
  size_t num_details = 0;  // of them
  int64_t num_left_out = 0;
  std::map<std::thread::id, int> threads;

  bool has_room(Weight weight) const {
    return weight == Weight::kEssential || num_details < options.max_spans;
  }
};

Recorder& recorder() {
  static auto* recorder =
      new Recorder;  // leaked: threads may end spans while statics are destroyed
  return *recorder;
}

int64_t host_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// With the mutex held. A span that will be left out needs no mark.
Point point(Recorder& all, bool on_device, Weight weight) {
  Point point{
      .recording = all.last, .nanoseconds = host_nanoseconds(), .mark = {}, .weight = weight};
  const bool marks = on_device && all.options.device && all.has_room(weight);
  if (marks) point.mark = all.options.device->mark();
  return point;
}

std::vector<Event> events_of(const std::vector<Span>& spans, int64_t start, DeviceClock* device) {
  std::vector<Event> events;
  for (const auto& [name, category, shape, thread, begin, end] : spans) {
    events.push_back({.name = name,
                      .category = category,
                      .shape = shape,
                      .thread = thread,
                      .begin = static_cast<double>(begin.nanoseconds - start) * 1e-3,
                      .duration = static_cast<double>(end.nanoseconds - begin.nanoseconds) * 1e-3});
    if (!begin.mark || !end.mark) continue;
    auto event = events.back();
    event.on_device = true;
    event.begin = device->microseconds(*begin.mark);
    event.duration = std::max(0.0, device->microseconds(*end.mark) - event.begin);
    events.push_back(std::move(event));
  }
  return events;
}

constexpr int kDeviceRow = 1000;  // behind all threads

int row_of(const Event& event) { return event.on_device ? kDeviceRow : event.thread; }

using nlohmann::ordered_json;

ordered_json name_event(const char* what, int rank, int row, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}};
}

// What the process and its rows are called.
std::vector<ordered_json> name_events(const Recording& recording, int rank) {
  std::map<int, std::string> rows;
  for (const auto& event : recording.events) {
    const int row = row_of(event);
    rows[row] = event.on_device ? "device" : row == 0 ? "training" : fmt::format("thread {}", row);
  }
  std::vector<ordered_json> events = {
      name_event("process_name", rank, 0, fmt::format("rank {}", rank))};
  for (const auto& [row, name] : rows) {
    events.push_back(name_event("thread_name", rank, row, name));
  }
  return events;
}

// Chrome draws "X" nested in the row of a thread, and "b" to "e" beside it.
std::vector<ordered_json> events_of(const Event& event, int rank, size_t id) {
  ordered_json first = {{"ph", "X"},
                        {"cat", event.category},
                        {"name", event.name},
                        {"pid", rank},
                        {"tid", row_of(event)},
                        {"ts", event.begin},
                        {"dur", event.duration}};
  if (event.shape == Shape::kNested) return {first};
  first.erase("dur");
  first["ph"] = "b";
  first["id"] = id;
  first["cat"] = fmt::format("{} ({})", event.category, event.on_device ? "device" : "host");
  auto last = first;
  last["ph"] = "e";
  last["ts"] = event.begin + event.duration;
  return {first, last};
}

}  // namespace

bool is_recording() { return recorder().current.load(std::memory_order_relaxed) != 0; }

void begin(Options options) {
  auto& all = recorder();
  const std::scoped_lock lock(all.mutex);
  SKEIN_CHECK(all.current == 0, "a trace is being recorded already");
  all.options = std::move(options);
  all.spans.clear();
  all.num_details = 0;
  all.num_left_out = 0;
  all.threads = {{std::this_thread::get_id(), 0}};
  all.start = host_nanoseconds();
  all.current = ++all.last;
}

Recording end() {
  auto& all = recorder();
  std::vector<Span> spans;
  std::shared_ptr<DeviceClock> device;
  Recording recording;
  int64_t start = 0;
  {
    const std::scoped_lock lock(all.mutex);
    SKEIN_CHECK(all.current != 0, "no trace is being recorded");
    all.current = 0;
    start = all.start;
    spans = std::exchange(all.spans, {});
    device = std::exchange(all.options.device, nullptr);
    recording.num_left_out = all.num_left_out;
  }
  recording.duration = static_cast<double>(host_nanoseconds() - start) * 1e-3;
  recording.events = events_of(spans, start, device.get());
  return recording;
}

void discard() noexcept {
  auto& all = recorder();
  const std::scoped_lock lock(all.mutex);
  all.current = 0;
  all.spans.clear();
  all.options.device = nullptr;
}

Point now(Clock clock, Weight weight) {
  if (!is_recording()) return {};
  auto& all = recorder();
  const std::scoped_lock lock(all.mutex);
  return all.current == 0 ? Point() : point(all, clock == Clock::kDevice, weight);
}

void add(const char* category, std::string name, const Point& since, Shape shape) {
  auto& all = recorder();
  const std::scoped_lock lock(all.mutex);
  if (all.current == 0 || since.recording != all.last) return;
  if (!all.has_room(since.weight)) {
    ++all.num_left_out;
    return;
  }
  const int next = static_cast<int>(all.threads.size());
  const int thread = all.threads.emplace(std::this_thread::get_id(), next).first->second;
  const auto until = point(all, since.mark.has_value(), since.weight);
  all.spans.push_back({std::move(name), category, shape, thread, since, until});
  if (since.weight == Weight::kDetail) ++all.num_details;
}

bool Recording::has_device() const {
  return std::ranges::any_of(events, [](const Event& event) { return event.on_device; });
}

double Recording::microseconds(std::string_view category, std::string_view name) const {
  double on_host = 0, on_device = 0;
  for (const auto& event : events) {
    if (event.category != category || event.name != name) continue;
    (event.on_device ? on_device : on_host) += event.duration;
  }
  return on_device > 0 ? on_device : on_host;
}

std::string to_json(const Recording& recording, int rank) {
  auto events = name_events(recording, rank);
  for (size_t i = 0; i < recording.events.size(); ++i) {
    for (auto& event : events_of(recording.events[i], rank, i)) events.push_back(std::move(event));
  }
  const ordered_json trace = {
      {"displayTimeUnit", "ms"},
      {"otherData", {{"rank", rank}, {"spans_left_out", recording.num_left_out}}},
      {"traceEvents", std::move(events)}};
  return trace.dump() + "\n";
}

}  // namespace skein::trace
