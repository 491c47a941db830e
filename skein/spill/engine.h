// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Who carries transfers while their owner does something else?
//
// io_uring, where the kernel and the container allow it: it costs no thread, and the disk always
// has several requests. Otherwise threads, each with one pread or pwrite at a time.

#include <memory>
#include <string>

#include "skein/spill/transfer.h"

namespace skein::spill {

// One thread at a time uses it, and none ends before the transfers that it has started (the kernel
// cancels them). A transfer and its memory must stay where they are until it
// is done, and all must be done before the engine goes.
class Engine {
 public:
  virtual ~Engine() = default;

  // Returns at once. What the disk has no room for yet waits, and is handed on by later calls.
  virtual void start(Transfer& transfer) = 0;
  // Returns when it is done, well or badly.
  virtual void finish(Transfer& transfer) = 0;
};

// Null, with the reason in `refusal`, where io_uring is not to be had. `depth`: transfers that the
// disk has at once.
std::unique_ptr<Engine> make_uring_engine(int descriptor, unsigned depth, std::string& refusal);

std::unique_ptr<Engine> make_thread_engine(int descriptor, unsigned threads);

enum class EngineKind {
  kAuto,  // io_uring, unless SKEIN_IO_URING=0 or the system forbids it: said once in a process
  kThreads,
};

struct EngineOptions {
  unsigned depth = 16;   // transfers that io_uring has at once
  unsigned threads = 0;  // without io_uring; 0: as many as `depth`
  EngineKind kind = EngineKind::kAuto;
};

struct ChosenEngine {
  std::unique_ptr<Engine> engine;
  bool is_uring = false;
};
ChosenEngine make_engine(int descriptor, const EngineOptions& options);

}  // namespace skein::spill
