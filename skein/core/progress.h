// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How far is a long preparation? One live line on a terminal, a plain line now and then without.
//
// Goes to stderr. Short work shows nothing. Thread-safe.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace skein {

class Progress {
 public:
  // `what` as in "encoding 12 files"; `total` in bytes, or in what `unit` names.
  Progress(std::string what, uint64_t total, std::string unit = "");
  ~Progress();  // clears the live line

  void add(uint64_t count);
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  void show(Clock::time_point now);
  std::string amounts(double rate) const;

  std::string what_;
  uint64_t total_;
  std::string unit_;
  bool is_terminal_;
  Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  Clock::time_point next_;
  uint64_t done_ = 0;
  bool is_shown_ = false;
};

}  // namespace skein
