// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include "skein/core/error.h"

namespace skein::checkpoint {
namespace {

// A thousand ranks that ask for a key twenty times a second would keep the store busy.
constexpr std::chrono::milliseconds kPause{50};
constexpr std::chrono::milliseconds kTellEvery{1000};
constexpr size_t kMaxPartBytes = size_t{512} << 10;  // a store's frame holds 1 MiB
constexpr std::string_view kDone = "done ";
constexpr std::string_view kFailed = "failed ";
constexpr std::string_view kFull = "full ";  // a failure too

bool is_failure(std::string_view text) {
  return text.starts_with(kFailed) || text.starts_with(kFull);
}
std::string reason_in(const std::string& text) { return text.substr(text.find(' ') + 1); }

void parse_ranges(const std::string& text, std::vector<WrittenRange>& ranges) {
  std::istringstream lines(text);
  WrittenRange range;
  while (lines >> range.file >> range.begin >> range.end >> range.digest) ranges.push_back(range);
}

}  // namespace

Exchange::Exchange(Store& store, ExchangeOptions options, const std::atomic<bool>& stop)
    : store_(&store),
      options_(std::move(options)),
      stop_(&stop),
      told_(options_.now()),
      moved_(told_) {}

std::string Exchange::done_key(int rank) const { return key(fmt::format("done/{}", rank)); }
std::string Exchange::part_key(int rank, int64_t part) const {
  return key(fmt::format("ranges/{}/{}", rank, part));
}

void Exchange::announce_ready() { store_->set(key("ready"), "1"); }

void Exchange::announce_result(const std::string& failure, bool room_made) {
  room_made_ = room_made;
  const auto kind = failure.empty() ? kDone : room_made ? kFull : kFailed;
  store_->set(key("result"), std::string(kind) + failure);
}

void Exchange::await_ready() { await(key("ready"), 1); }

std::string Exchange::await_result() {
  const auto text = await(key("result"), 2);
  room_made_ = text.starts_with(kFull);
  return is_failure(text) ? reason_in(text) : "";
}

void Exchange::advance(uint64_t bytes) {
  untold_ += bytes;
  const auto now = options_.now();
  if (now - told_ < std::min(kTellEvery, options_.timeout / 10)) return;
  told_ = now;
  store_->add(key("bytes"), static_cast<int64_t>(std::exchange(untold_, 0)));
}

void Exchange::report(const std::vector<WrittenRange>& ranges) {
  int64_t parts = 0;
  std::string text;
  const auto flush = [&] {
    store_->set(part_key(rank(), parts++), text);
    text.clear();
  };
  for (const auto& range : ranges) {
    text += fmt::format("{} {} {} {}\n", range.file, range.begin, range.end, range.digest);
    if (text.size() > kMaxPartBytes) flush();
  }
  if (!text.empty()) flush();
  store_->set(done_key(rank()), fmt::format("{}{}", kDone, parts));
}

void Exchange::report_failure(const std::string& why, bool disk_full) {
  store_->set(done_key(rank()), std::string(disk_full ? kFull : kFailed) + why);
}

std::vector<WrittenRange> Exchange::collect() {
  std::vector<WrittenRange> ranges;
  for (int peer = 1; peer < options_.size; ++peer) {
    std::string text;
    try {
      text = await(done_key(peer), 1);
    } catch (const CommError& error) {
      throw IoError(
          fmt::format("rank {} of {} did not report: {}", peer, options_.size, error.what()));
    }
    const auto failure = fmt::format("rank {}: {}", peer, reason_in(text));
    if (text.starts_with(kFull)) throw DiskFull(failure);
    if (text.starts_with(kFailed)) throw IoError(failure);
    const int64_t parts = std::stoll(text.substr(kDone.size()));
    for (int64_t part = 0; part < parts; ++part) {
      parse_ranges(await(part_key(peer, part), 1), ranges);
    }
    erase_report(peer);
  }
  return ranges;
}

void Exchange::erase_report(int rank) {
  store_->erase(done_key(rank));
  for (int64_t part = 0; store_->erase(part_key(rank, part)); ++part) {
  }
}

void Exchange::erase_keys() {
  for (int rank = 1; rank < options_.size; ++rank) erase_report(rank);
  store_->erase(key("bytes"));
  store_->erase(key("ready"));
  store_->erase(key("result"));
}

// The time is read before the counter, and again when that has grown: however long this thread was
// held up in between, a rank that writes is not late.
bool Exchange::is_late(int64_t timeouts) {
  const auto now = options_.now();
  if (const auto bytes = store_->add(key("bytes"), 0); bytes != seen_bytes_) {
    seen_bytes_ = bytes;
    moved_ = options_.now();
    return false;
  }
  return now > moved_ + timeouts * options_.timeout;
}

std::string Exchange::await(const std::string& what, int64_t timeouts) {
  const auto longest = std::max(kPause, std::chrono::milliseconds(options_.size));
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    if (auto value = store_->try_get(what)) return *value;
    // Whatever a rank waits for, a save that has failed will not bring it.
    if (const auto result = store_->try_get(key("result")); result && rank() != 0) {
      room_made_ = result->starts_with(kFull);
      if (is_failure(*result)) throw IoError(reason_in(*result));
    }
    if (stop_->load()) throw CommError("the run is ending");
    if (is_late(timeouts)) {
      const std::chrono::duration<double> patience = timeouts * options_.timeout;
      throw CommError(fmt::format("no '{}', and no rank has written a byte for {:g} s", what,
                                  patience.count()));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, longest);
  }
}

}  // namespace skein::checkpoint
