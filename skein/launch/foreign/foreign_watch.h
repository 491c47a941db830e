// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Watches the ranks of a run that another launcher has started.
//
// There is no launcher of ours to read the boards, so each rank publishes its own through the store
// twice a second. Rank 0 compares them (diagnosis.h) and publishes a verdict; the others look for
// it, and keep an eye on rank 0. A verdict ends every rank with exit code 3. So does a store that
// is lost or does not answer.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "skein/board/board.h"
#include "skein/core/store.h"
#include "skein/launch/watch/diagnosis.h"

namespace skein::launch {

struct ForeignWatchOptions {
  int rank = 0;
  int size = 1;
  bool serves = false;            // the store ends with this process
  std::string server = "rank 0";  // who serves it, for messages
  Limits limits;
  std::chrono::milliseconds interval{500};
  std::function<std::optional<board::BoardView>()> board = [] { return board::own_board(); };
  // The board that a rank of this machine has left behind, which is newer than what was heard of
  // it.
  std::function<std::optional<board::BoardView>(int rank)> board_left;
  std::function<void()> put_away;  // what this process has on disk, before a verdict ends it
  // Ends the process. `text` is for the user: printed by one rank, noted by the others.
  std::function<void(const std::string& text, bool to_print)> end;  // empty: log, then exit code 3
};

class ForeignWatch {
 public:
  // The store must outlive it.
  ForeignWatch(Store& store, ForeignWatchOptions options);
  ~ForeignWatch();  // stops without a word to the others
  ForeignWatch(const ForeignWatch&) = delete;

  // This rank is done. One that serves the store waits for the others, at most so long.
  void leave(std::chrono::milliseconds most = std::chrono::seconds(30));
  // This rank has lost another one: gives the watch time to find out which, and to end this
  // process with what it finds.
  void wait_for_cause();
  // This rank has failed and said so: ends the others. Returns when they know, after 2 s at most.
  void fail(const std::string& message);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace skein::launch
