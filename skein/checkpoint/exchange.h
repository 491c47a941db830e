// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do the writers of one save tell each other what they have done?
//
// Through keys of the control store, by polling: a blocking get could hold up the other users of
// the same connection, and could not be stopped. No collective.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

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
  std::chrono::milliseconds deadline{600'000};  // from construction
};

class Exchange {
 public:
  // `store` and `stop` outlive the exchange; setting `stop` ends every wait with a CommError.
  Exchange(Store& store, ExchangeOptions options, const std::atomic<bool>& stop);

  int rank() const { return options_.rank; }

  // Rank 0: the files are there.
  void announce_ready();
  // Rank 0: the save has ended; an empty text means that it was committed.
  void announce_result(const std::string& failure);
  // Throws IoError with rank 0's reason if the save has already failed.
  void await_ready();
  // Empty when committed, otherwise the reason. Waits longer than rank 0 waits for the others.
  std::string await_result();

  void report(const std::vector<WrittenRange>& ranges);
  void report_failure(const std::string& why);
  // Rank 0: what all other ranks wrote. Throws IoError naming the rank that failed or is late.
  std::vector<WrittenRange> collect();

  // Rank 0, when no rank can still need them.
  void erase_keys();

 private:
  std::string key(const std::string& what) const { return options_.prefix + "/" + what; }
  std::string done_key(int rank) const;
  std::string part_key(int rank, int64_t part) const;
  std::string await(const std::string& what, int64_t deadlines);
  void erase_report(int rank);

  Store* store_;
  ExchangeOptions options_;
  const std::atomic<bool>* stop_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace skein::checkpoint
