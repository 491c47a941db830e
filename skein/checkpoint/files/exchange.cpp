// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

void Exchange::require_wanted() const {
  if (given_up_) throw CommError("this save was given up");
}

Store& Exchange::store() const {
  require_wanted();
  return *store_;
}

int64_t Exchange::total_bytes() const { return store().add(key("bytes"), 0); }

std::optional<std::string> Exchange::failure() const {
  const auto result = store().try_get(key("result"));
  if (!result || !is_failure(*result)) return std::nullopt;
  return reason_in(*result);
}

void Exchange::give_up(const std::string& why) {
  given_up_ = true;
  if (rank() == 0 && store_->try_get(key("result"))) return;  // told already
  store_->set(rank() == 0 ? key("result") : done_key(rank()), std::string(kFailed) + why);
}

std::string Exchange::done_key(int rank) const { return key(fmt::format("done/{}", rank)); }
std::string Exchange::part_key(int rank, int64_t part) const {
  return key(fmt::format("ranges/{}/{}", rank, part));
}

void Exchange::announce_ready() { store().set(key("ready"), "1"); }

void Exchange::announce_result(const std::string& failure, bool room_made) {
  room_made_ = room_made;
  const auto kind = failure.empty() ? kDone : room_made ? kFull : kFailed;
  store().set(key("result"), std::string(kind) + failure);
}

void Exchange::await_ready() { await(key("ready"), 1); }

std::string Exchange::await_result() {
  const auto text = await(key("result"), 2);
  room_made_ = text.starts_with(kFull);
  return is_failure(text) ? reason_in(text) : "";
}

void Exchange::put(const std::string& name, const std::string& text) {
  int64_t parts = 0;
  for (size_t begin = 0; begin < text.size(); begin += kMaxPartBytes) {
    own_keys_.push_back(key(fmt::format("{}/{}", name, parts++)));
    store().set(own_keys_.back(), text.substr(begin, kMaxPartBytes));
  }
  own_keys_.push_back(key(name));
  store().set(own_keys_.back(), std::to_string(parts));
}

std::string Exchange::take(const std::string& name, int from) {
  const int64_t parts = std::stoll(await(key(name), 1, from));
  std::string text;
  for (int64_t part = 0; part < parts; ++part) {
    const auto part_name = key(fmt::format("{}/{}", name, part));
    text += await(part_name, 1, from);
    store().erase(part_name);
  }
  store().erase(key(name));
  return text;
}

void Exchange::tell_extents(const std::vector<Extent>& held) {
  if (options_.node.empty()) return;
  auto text = options_.node + "\n";
  for (const auto& [file, begin, end] : edges_of(held)) {
    text += fmt::format("{} {} {}\n", file, begin, end);
  }
  put(fmt::format("edges/{}", rank()), text);
}

Routes Exchange::agree_on_pages(const std::vector<Extent>& held) {
  if (options_.node.empty()) return {};
  std::vector<RankEdges> ranks = {{options_.node, edges_of(held)}};
  for (int peer = 1; peer < options_.size; ++peer) {
    std::istringstream lines(take(fmt::format("edges/{}", peer), peer));
    auto& [node, edges] = ranks.emplace_back();
    std::getline(lines, node);
    for (Extent edge; lines >> edge.file >> edge.begin >> edge.end;) edges.push_back(edge);
  }
  std::map<int, std::string> texts;
  Routes own;
  for (const auto& handover : route_pages(ranks)) {
    const auto& [bytes, from, to] = handover;
    if (from == 0) own.sends.push_back(handover);
    if (to == 0) own.receives.push_back(handover);
    for (const int concerned : {from, to}) {
      texts[concerned] +=
          fmt::format("{} {} {} {} {}\n", bytes.file, bytes.begin, bytes.end, from, to);
    }
  }
  for (const auto& [concerned, text] : texts) {
    if (concerned != 0) put(fmt::format("routes/{}", concerned), text);
  }
  return own;
}

Routes Exchange::ask_routes() {
  const auto name = fmt::format("routes/{}", rank());
  // They were set before the files were announced.
  if (options_.node.empty() || !store().try_get(key(name))) return {};
  std::istringstream lines(take(name, 0));
  Routes routes;
  for (Handover one;
       lines >> one.bytes.file >> one.bytes.begin >> one.bytes.end >> one.from >> one.to;) {
    (one.from == rank() ? routes.sends : routes.receives).push_back(one);
  }
  return routes;
}

void Exchange::hand_over(int to, const std::string& bytes) {
  put(fmt::format("pages/{}/{}", rank(), to), bytes);
}

std::string Exchange::take_over(int from) {
  return take(fmt::format("pages/{}/{}", from, rank()), from);
}

void Exchange::throw_failure(int peer, const std::string& text) const {
  const auto failure = fmt::format("rank {}: {}", peer, reason_in(text));
  if (text.starts_with(kFull)) throw DiskFull(failure);
  if (text.starts_with(kFailed)) throw IoError(failure);
}

void Exchange::advance(uint64_t bytes) {
  require_wanted();
  untold_ += bytes;
  const auto now = options_.now();
  moved_ = now;
  if (now - told_ < std::min(kTellEvery, options_.timeout / 10)) return;
  told_ = now;
  store().add(key("bytes"), static_cast<int64_t>(std::exchange(untold_, 0)));
}

void Exchange::report(const std::vector<WrittenRange>& ranges) {
  int64_t parts = 0;
  std::string text;
  const auto flush = [&] {
    store().set(part_key(rank(), parts++), text);
    text.clear();
  };
  for (const auto& range : ranges) {
    text += fmt::format("{} {} {} {}\n", range.file, range.begin, range.end, range.digest);
    if (text.size() > kMaxPartBytes) flush();
  }
  if (!text.empty()) flush();
  store().set(done_key(rank()), fmt::format("{}{}", kDone, parts));
}

void Exchange::report_failure(const std::string& why, bool disk_full) {
  store().set(done_key(rank()), std::string(disk_full ? kFull : kFailed) + why);
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
    throw_failure(peer, text);
    const int64_t parts = std::stoll(text.substr(kDone.size()));
    for (int64_t part = 0; part < parts; ++part) {
      parse_ranges(await(part_key(peer, part), 1), ranges);
    }
    erase_report(peer);
  }
  return ranges;
}

void Exchange::erase_report(int rank) {
  store().erase(done_key(rank));
  for (int64_t part = 0; store().erase(part_key(rank, part)); ++part) {
  }
}

void Exchange::erase_keys() {
  for (const auto& name : std::exchange(own_keys_, {})) store().erase(name);
  if (rank() != 0) return;
  for (int rank = 1; rank < options_.size; ++rank) erase_report(rank);
  store().erase(key("bytes"));
  store().erase(key("ready"));
  store().erase(key("result"));
}

// The time is read before the counter, and again when that has grown: however long this thread was
// held up in between, a rank that writes is not late.
bool Exchange::is_late(int64_t timeouts) {
  const auto now = options_.now();
  if (const auto bytes = total_bytes(); bytes != seen_bytes_) {
    seen_bytes_ = bytes;
    moved_ = options_.now();
    return false;
  }
  return now > moved_.load() + timeouts * options_.timeout;
}

std::string Exchange::await(const std::string& what, int64_t timeouts, int peer) {
  const auto longest = std::max(kPause, std::chrono::milliseconds(options_.size));
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    if (auto value = store().try_get(what)) return *value;
    // Whatever a rank waits for, a save that has failed will not bring it.
    if (const auto result = store().try_get(key("result")); result && rank() != 0) {
      room_made_ = result->starts_with(kFull);
      if (is_failure(*result)) throw IoError(reason_in(*result));
    }
    if (rank() == 0 && peer > 0) {
      if (const auto done = store().try_get(done_key(peer))) throw_failure(peer, *done);
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
