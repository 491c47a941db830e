// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do the writers of one save tell each other what they have done?
//
// Through keys of the control store, by polling: a blocking get could hold up the other users of
// the same connection, and could not be stopped. No collective.
//
// A wait ends in vain when no rank has written a byte for as long as `timeout`: a slow disk is not
// a late rank, and while a run is paused no time passes. Ranks tell what they have written through
// one counter.
//
// A write that its disk does not answer holds up the thread that makes it. For that case another
// thread of the rank may look at the save and give it up: total_bytes(), last_move(), failure(),
// give_up() and is_given_up() are for any thread, the rest is the writer's.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "skein/checkpoint/files/page_routes.h"
#include "skein/core/clock.h"
#include "skein/core/store.h"

namespace skein::checkpoint {

struct WrittenRange {
  uint64_t file = 0;  // index into the list of files that all ranks share
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string digest;
};

struct ExchangeOptions {
  std::string prefix;  // unique to this save, alike on all ranks
  int rank = 0;
  int size = 1;
  std::string node;                            // this rank's; empty on all ranks: they are on one
  std::chrono::milliseconds timeout{600'000};  // without progress of any rank
  std::function<Time()> now = Clock::now;
};

// What a rank hands over to others, and gets from them: sorted by bytes, as both sides know them.
struct Routes {
  std::vector<Handover> sends;
  std::vector<Handover> receives;
};

class Exchange {
 public:
  // `store` and `stop` outlive the exchange; setting `stop` ends every wait with a CommError.
  Exchange(Store& store, ExchangeOptions options, const std::atomic<bool>& stop);

  int rank() const { return options_.rank; }

  // Rank 0: the files are there.
  void announce_ready();
  // Rank 0: the save has ended; an empty text means that it was committed. `room_made`: the disk
  // was full and is less so now.
  void announce_result(const std::string& failure, bool room_made = false);
  // Throws IoError with rank 0's reason if the save has already failed.
  void await_ready();
  // Empty when committed, otherwise the reason. Waits longer than rank 0 waits for the others.
  std::string await_result();
  bool room_made() const { return room_made_; }  // as rank 0 has announced it

  // Which bytes change hands so that no page is written by two nodes. Rank 0 agree()s before it
  // announces that the files are there; the others tell() before they wait for that, and then ask.
  void tell_extents(const std::vector<Extent>& held);
  Routes agree_on_pages(const std::vector<Extent>& held);
  Routes ask_routes();
  void hand_over(int to, const std::string& bytes);
  std::string take_over(int from);

  // This rank has written so many bytes more. The others learn of it soon, not at once.
  void advance(uint64_t bytes);
  int64_t total_bytes() const;                 // of all ranks, as far as they have told it
  Time last_move() const { return moved_; }    // when this rank's writer last saw them grow
  std::optional<std::string> failure() const;  // as rank 0 has announced it

  // This rank's part of the save comes to nothing, and rank 0 (or rank 0 all others) is told. What
  // the writer calls from here on throws CommError and does not touch the store.
  void give_up(const std::string& why);
  bool is_given_up() const { return given_up_; }
  void require_wanted() const;  // throws that CommError

  void report(const std::vector<WrittenRange>& ranges);
  void report_failure(const std::string& why, bool disk_full = false);
  // Rank 0: what all other ranks wrote. Throws IoError (DiskFull) naming the rank that failed or
  // is late.
  std::vector<WrittenRange> collect();

  // Every rank, when none can still need them: what it has set.
  void erase_keys();

 private:
  std::string key(const std::string& what) const { return options_.prefix + "/" + what; }
  std::string done_key(int rank) const;
  std::string part_key(int rank, int64_t part) const;
  // Whatever rank 0 waits for, a `peer` that has failed will not bring it.
  std::string await(const std::string& what, int64_t timeouts, int peer = 0);
  // Texts longer than a frame.
  void put(const std::string& name, const std::string& text);
  std::string take(const std::string& name, int from);
  void throw_failure(int peer, const std::string& text) const;
  bool is_late(int64_t timeouts);
  void erase_report(int rank);

  Store& store() const;

  Store* store_;
  ExchangeOptions options_;
  const std::atomic<bool>* stop_;
  std::vector<std::string> own_keys_;  // of put()
  bool room_made_ = false;
  uint64_t untold_ = 0;  // bytes
  Time told_;
  int64_t seen_bytes_ = 0;   // of all ranks
  std::atomic<Time> moved_;  // when they were last seen to grow
  std::atomic<bool> given_up_ = false;
};

}  // namespace skein::checkpoint
