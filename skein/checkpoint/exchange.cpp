// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <thread>

#include "skein/core/error.h"

namespace skein::checkpoint {
namespace {

constexpr size_t kMaxPartBytes = size_t{512} << 10;  // a store's frame holds 1 MiB
constexpr std::string_view kDone = "done ";
constexpr std::string_view kFailed = "failed ";

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
      start_(std::chrono::steady_clock::now()) {}

std::string Exchange::done_key(int rank) const { return key(fmt::format("done/{}", rank)); }
std::string Exchange::part_key(int rank, int64_t part) const {
  return key(fmt::format("ranges/{}/{}", rank, part));
}

void Exchange::announce_ready() { store_->set(key("ready"), "1"); }

void Exchange::announce_result(const std::string& failure) {
  store_->set(key("result"), failure.empty() ? std::string(kDone) : std::string(kFailed) + failure);
}

void Exchange::await_ready() { await(key("ready"), 1); }

std::string Exchange::await_result() {
  const auto text = await(key("result"), 2);
  return text.starts_with(kFailed) ? text.substr(kFailed.size()) : "";
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

void Exchange::report_failure(const std::string& why) {
  store_->set(done_key(rank()), std::string(kFailed) + why);
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
    if (text.starts_with(kFailed)) {
      throw IoError(fmt::format("rank {}: {}", peer, text.substr(kFailed.size())));
    }
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
  store_->erase(key("ready"));
  store_->erase(key("result"));
}

std::string Exchange::await(const std::string& what, int64_t deadlines) {
  const auto end = start_ + deadlines * options_.deadline;
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    if (auto value = store_->try_get(what)) return *value;
    // Whatever a rank waits for, a save that has failed will not bring it.
    if (const auto result = store_->try_get(key("result")); result && rank() != 0) {
      if (result->starts_with(kFailed)) throw IoError(result->substr(kFailed.size()));
    }
    if (stop_->load()) throw CommError("the run is ending");
    if (std::chrono::steady_clock::now() > end) {
      throw CommError(
          fmt::format("no '{}' within {} ms", what, (deadlines * options_.deadline).count()));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(50));
  }
}

}  // namespace skein::checkpoint
