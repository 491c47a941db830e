// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "skein/core/error.h"

namespace skein::launch {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

void say(const char* text) { [[maybe_unused]] const auto written = write(2, text, strlen(text)); }

// Runs between fork and exec beside the launcher's other threads: system calls only.
[[noreturn]] void become(char* const* arguments, char* const* environment, int inherited,
                         pid_t launcher) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before the line above
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (inherited >= 0) fcntl(inherited, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(arguments[0], arguments, environment);
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
  const auto arguments = pointers(command.arguments);
  const auto environment = pointers(command.environment);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) throw_errno("cannot start another process");
  if (pid_ == 0) become(arguments.data(), environment.data(), command.inherited, launcher);
  setpgid(pid_, pid_);  // here too: kill_group() must find the group whoever runs first
  watch_ = File(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!watch_) {
    const int reason = errno;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    errno = reason;
    throw_errno("cannot watch a process (pidfd_open needs Linux 5.3)");
  }
}

Child::~Child() {
  if (!running()) return;
  kill_group();
  waitpid(pid_, nullptr, 0);
}

void Child::send(int signal) const {
  if (running()) kill(pid_, signal);
}

void Child::kill_group() const {
  if (running()) kill(-pid_, SIGKILL);
}

std::optional<ChildEnd> Child::reap() {
  siginfo_t info{};
  // Not reaped yet, so that the number still names this group and no other.
  const int got = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (got != 0 || info.si_pid == 0) return std::nullopt;
  kill_group();
  waitpid(pid_, nullptr, 0);
  watch_ = File();
  if (info.si_code == CLD_EXITED) return ChildEnd{.code = info.si_status};
  return ChildEnd{.signal = info.si_status};
}

}  // namespace skein::launch
