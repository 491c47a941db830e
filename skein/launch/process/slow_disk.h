// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Work on a disk that may never answer, by a process that must be able to end all the same.
//
// A process ends with the last of its threads, and one that hangs in the kernel (state D: a frozen
// file system, a broken disk) ends by no signal. So what changes a disk is done by another process,
// which may be left behind, while the thread that asked for it waits in a way that can be ended:
//
//   const auto done = try_for(seconds(5), [path] { run_apart([&] { fs::remove(path); }); return
//   true; });

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace skein::launch {

// Returns, or throws, what `work` does, which sees and changes this process's memory but has none
// of its open files: it opens what it needs, and says nothing. It ends with this thread, if it can.
void run_apart(const std::function<void()>& work);

// What `work` returns or throws, on a thread of its own; nothing when that takes longer than
// `patience`. It may then go on for ever: it must own, or share, what it uses.
template <typename Work>
auto try_for(std::chrono::milliseconds patience, Work work) {
  using Result = std::invoke_result_t<Work>;
  const auto task = std::make_shared<std::packaged_task<Result()>>(std::move(work));
  auto result = task->get_future();
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {
    (*task)();  // no thread can be had: better here than not at all
  }
  const bool done = result.wait_for(patience) == std::future_status::ready;
  return done ? std::optional<Result>(result.get()) : std::nullopt;
}

}  // namespace skein::launch
