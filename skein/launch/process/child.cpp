// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/process/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

#include "skein/core/error.h"

namespace skein::launch {
namespace {

constexpr int kLastLooks = 1000;  // a millisecond apart
constexpr int kDescriptors = 4096;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void say(const char* text) { [[maybe_unused]] const auto written = write(2, text, strlen(text)); }

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

// All that the child needs, made before the fork.
struct Prepared {
  std::vector<char*> arguments, environment;
  std::unique_ptr<cpu_set_t, FreeCpuSet> cpus;  // null: where the launcher runs
  size_t cpus_bytes = 0;
  pid_t launcher = getpid();
};

Prepared prepare(const ChildCommand& command) {
  Prepared result{.arguments = pointers(command.arguments),
                  .environment = pointers(command.environment)};
  if (command.cpus.empty()) return result;
  const int count = *std::max_element(command.cpus.begin(), command.cpus.end()) + 1;
  result.cpus_bytes = CPU_ALLOC_SIZE(count);
  result.cpus.reset(CPU_ALLOC(count));
  CPU_ZERO_S(result.cpus_bytes, result.cpus.get());
  for (const int cpu : command.cpus) CPU_SET_S(cpu, result.cpus_bytes, result.cpus.get());
  return result;
}

void replace_stream(int from, int stream) {
  if (from >= 0) dup2(from, stream);
}

void close_others_on_exec() {
  if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int descriptor = 3; descriptor < kDescriptors; ++descriptor) {  // before Linux 5.11
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  }
}

// Runs between fork and exec beside the launcher's other threads: system calls only.
[[noreturn]] void become(const ChildCommand& command, const Prepared& prepared) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.launcher) _exit(1);  // it died before the line above
  replace_stream(command.in >= 0 ? command.in : open("/dev/null", O_RDONLY | O_CLOEXEC),
                 STDIN_FILENO);
  replace_stream(command.out, STDOUT_FILENO);
  replace_stream(command.error, STDERR_FILENO);
  if (!command.keeps_descriptors) close_others_on_exec();
  for (const int descriptor : command.inherited) fcntl(descriptor, F_SETFD, 0);
  // A refused binding costs speed and nothing else, so that the run goes on without it.
  if (prepared.cpus != nullptr) sched_setaffinity(0, prepared.cpus_bytes, prepared.cpus.get());
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  char* const* arguments = prepared.arguments.data();
  execve(arguments[0], arguments, prepared.environment.data());
  const char* reason = strerrordesc_np(errno);
  for (const char* part :
       {"error: cannot start ", static_cast<const char*>(arguments[0]), ": ", reason, "\n"}) {
    say(part);
  }
  _exit(static_cast<int>(ExitCode::kUser));
}

}  // namespace

std::string describe(const ChildEnd& end) {
  if (end.signal == 0) return fmt::format("exit code {}", end.code);
  const char* name = sigabbrev_np(end.signal);
  return name != nullptr ? fmt::format("killed by SIG{}", name)
                         : fmt::format("killed by signal {}", end.signal);
}

Child::Child(const ChildCommand& command) {
  SKEIN_CHECK(!command.arguments.empty(), "a child without a program");
  const auto& program = command.arguments.front();
  if (access(program.c_str(), X_OK) != 0) {
    throw UserError(fmt::format("cannot start {}: {}", program, std::strerror(errno)));
  }
  const auto prepared = prepare(command);
  pid_ = fork();
  if (pid_ < 0)
    throw_errno("cannot start another process (ulimit -u and a container's pids.max limit them)");
  if (pid_ == 0) become(command, prepared);
  setpgid(pid_, pid_);  // in the parent too: kill_group() must find the group even if the child has
                        // not run yet
  watch_ = File(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!watch_) {
    const int reason = errno;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    errno = reason;
    throw_errno(reason == ENOSYS ? "cannot watch a process (pidfd_open needs Linux 5.3)"
                                 : "cannot watch a process");
  }
}

Child::~Child() {
  if (!running()) return;
  kill_group();
  for (int i = 0; i < kLastLooks && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) usleep(1000);
}

void Child::send(int signal) const {
  if (running()) kill(pid_, signal);
}

void Child::send_group(int signal) const {
  if (running()) kill(-pid_, signal);
}

std::optional<ChildEnd> Child::reap() {
  siginfo_t info{};
  // Not reaped yet, so that the number still names this group and no other.
  const int got = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (got != 0) throw_errno(fmt::format("cannot learn how process {} ended", pid_));
  if (info.si_pid == 0) return std::nullopt;
  kill_group();
  waitpid(pid_, nullptr, 0);
  watch_ = File();
  if (info.si_code == CLD_EXITED) return ChildEnd{.code = info.si_status};
  return ChildEnd{.signal = info.si_status};
}

}  // namespace skein::launch
