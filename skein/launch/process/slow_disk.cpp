// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/slow_disk.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <exception>
#include <vector>

namespace skein::launch {
namespace {

constexpr size_t kStackBytes = size_t{1} << 20;

struct Task {
  const std::function<void()>& work;
  std::exception_ptr error;
};

// Whoever waits for the end of our output, or for our port, must not wait for this process.
void close_files() {
  const int nothing = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, stream);
  close_range(STDERR_FILENO + 1, ~0U, 0);
}

int become_another(void* argument) {
  auto& task = *static_cast<Task*>(argument);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close_files();
  try {
    task.work();
  } catch (...) {
    task.error = std::current_exception();
  }
  return 0;
}

// Held by the thread that starts the process, which inherits that: a terminal signals both.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

// With our memory (CLONE_VM), so that nothing is copied of a large process; this thread stands
// still meanwhile (CLONE_VFORK), so that the other may use what is its own.
void run_apart(const std::function<void()>& work) {
  Task task{work, nullptr};
  {
    const HeldSignals held;
    std::vector<std::max_align_t> stack(kStackBytes / sizeof(std::max_align_t));
    const pid_t other =
        clone(become_another, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, &task);
    if (other > 0) {
      waitpid(other, nullptr, 0);
    } else {
      work();  // no process can be had: better here than not at all
    }
  }
  if (task.error) std::rethrow_exception(task.error);
}

}  // namespace skein::launch
