// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/lease.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <fstream>
#include <thread>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/host.h"
#include "skein/core/testing.h"
#include "skein/launch/process/child.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;

struct LeaseTest : testing::Test {
  fs::path folder, output;
  const LeaseTimes quick{.beat = milliseconds(20), .ranks_end = milliseconds(100)};

  void SetUp() override {
    folder = make_temporary_folder("lease");
    output = folder / "out";
  }
  void TearDown() override { fs::remove_all(folder); }

  // Another machine's record, last touched `age` seconds ago.
  void write_foreign(int64_t age) const {
    fs::create_directories(output);
    const auto path = output / ".skein-lease";
    std::ofstream(path)
        << R"({"host":"host-b","boot":"other","pid":77,"since":"noon","token":"t"})";
    touch_foreign(age);
  }
  void touch_foreign(int64_t age) const {
    const auto path = output / ".skein-lease";
    timespec times[2] = {};
    timespec_get(&times[0], TIME_UTC);
    times[0].tv_sec -= age;
    times[1] = times[0];
    utimensat(AT_FDCWD, path.c_str(), times, 0);
  }
  // The record of a process of this machine, last touched now. No namespace: as older programs
  // wrote it.
  void write_local(pid_t pid, const std::string& pid_namespace) const {
    fs::create_directories(output);
    const auto inside =
        pid_namespace.empty() ? "" : fmt::format(R"("pid_namespace":"{}",)", pid_namespace);
    std::ofstream(output / ".skein-lease")
        << fmt::format(R"({{"host":"here","boot":"{}",{}"pid":{},"since":"noon","token":"t"}})",
                       boot_id(), inside, pid);
  }
  std::string record() const { return read_file(output / ".skein-lease"); }
  std::string refusal() const {
    return skein::refusal<UserError>([&] { const Lease lease(output, quick); });
  }
  // A launcher of its own process: holds the lease and starts a rank if asked, then waits.
  pid_t fork_holder(bool with_rank) const {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t holder = fork();
    if (holder == 0) {
      const Lease lease(output);
      std::optional<Child> rank;
      if (with_rank) {
        rank.emplace(ChildCommand{.arguments = {"/bin/sleep", "60"},
                                  .environment = {},
                                  .inherited = {lease.descriptor()},
                                  .cpus = {}});
      }
      [[maybe_unused]] const auto told = write(ready[1], "x", 1);
      pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return holder;
  }
};

void end_process(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// From here on this process (a child of the test) gets `error` from the system call `number`: from
// all of them, or from those whose second argument is `second`.
void let_fail(long number, int error, std::optional<int> second = std::nullopt) {
  constexpr auto kLoad = static_cast<uint16_t>(BPF_LD | BPF_W | BPF_ABS);
  constexpr auto kEqual = static_cast<uint16_t>(BPF_JMP | BPF_JEQ | BPF_K);
  constexpr auto kReturn = static_cast<uint16_t>(BPF_RET | BPF_K);
  // The lower half of the second argument, on machines that begin with it.
  constexpr uint32_t kSecond = offsetof(seccomp_data, args) + sizeof(uint64_t);
  std::array<sock_filter, 6> program = {
      {BPF_STMT(kLoad, offsetof(seccomp_data, nr)),
       BPF_JUMP(kEqual, static_cast<uint32_t>(number), 0, 3), BPF_STMT(kLoad, kSecond),
       BPF_JUMP(kEqual, static_cast<uint32_t>(second.value_or(0)), 0, 1),
       BPF_STMT(kReturn, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
       BPF_STMT(kReturn, SECCOMP_RET_ALLOW)}};
  const sock_fprog filter{program.size(), program.data()};
  if (!second) program[3] = BPF_STMT(kLoad, kSecond);  // whatever it is
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    _exit(99);
  }
}

// Two pipes between a test and its child.
struct Line {
  int to_child[2], to_test[2];
  Line() {
    EXPECT_EQ(pipe2(to_child, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(to_test, O_CLOEXEC), 0);
  }
  ~Line() {
    for (const int end : {to_child[0], to_child[1], to_test[0], to_test[1]}) close(end);
  }
  Line(const Line&) = delete;
  static void say(const int (&pipe)[2], char word) {
    [[maybe_unused]] const auto told = write(pipe[1], &word, 1);
  }
  static char hear(const int (&pipe)[2]) {
    char word = 0;
    [[maybe_unused]] const auto heard = read(pipe[0], &word, 1);
    return word;
  }
};

// Stands before its first write until the test lets it go on.
class Gate final : public FileSystem {
 public:
  explicit Gate(const Line& line) : line_(line) {}
  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    if (!std::exchange(passed_, true)) {
      Line::say(line_.to_test, 'w');
      Line::hear(line_.to_child);
    }
    return FileSystem::write(descriptor, bytes, offset);
  }

 private:
  const Line& line_;
  bool passed_ = false;
};

// A launcher on a file system without locks: says 'w' before it writes, then 'h' (it has the
// folder) or 'r' (refused), and ends when it is told.
pid_t fork_lockless(const fs::path& output, const Line& line) {
  const pid_t child = fork();
  if (child != 0) return child;
  let_fail(SYS_fcntl, ENOLCK, F_OFD_SETLK);
  Gate gate(line);
  const ScopedFileSystem scope(gate);
  try {
    const Lease lease(output, {.beat = milliseconds(10'000)});
    Line::say(line.to_test, 'h');
    Line::hear(line.to_child);
  } catch (const UserError& error) {
    Line::say(line.to_test, contains(error.what(), "is in use by the run on host") ? 'r' : '?');
    Line::hear(line.to_child);
  }
  _exit(0);
}

TEST_F(LeaseTest, AFolderHasOneRun) {
  {
    const Lease lease(output);
    const auto said = refusal();
    EXPECT_NE(said.find("out is in use by the run on host "), std::string::npos) << said;
    EXPECT_NE(said.find(", pid " + std::to_string(getpid())), std::string::npos) << said;
    EXPECT_NE(said.find("give another output_dir"), std::string::npos) << said;
    EXPECT_EQ(lease.lost(), std::nullopt);
  }
  EXPECT_TRUE(fs::is_empty(output));
  EXPECT_EQ(refusal(), "");
}

TEST_F(LeaseTest, AKilledHolderLeavesItFreeAtOnce) {
  const pid_t holder = fork_holder(/*with_rank=*/false);
  EXPECT_NE(refusal().find("pid " + std::to_string(holder)), std::string::npos);
  end_process(holder);
  EXPECT_EQ(refusal(), "");
}

// The rank dies with its launcher; until the kernel is done with that, a start waits.
TEST_F(LeaseTest, RanksOfAKilledHolderAreWaitedFor) {
  const pid_t holder = fork_holder(/*with_rank=*/true);
  end_process(holder);
  EXPECT_NO_THROW(Lease{output});
}

TEST_F(LeaseTest, ARankThatLivesOnHoldsIt) {
  int descriptor = -1;
  {
    const Lease lease(output);
    descriptor = dup(lease.descriptor());  // as a child has it
  }
  EXPECT_TRUE(fs::exists(output / ".skein-lease"));
  EXPECT_NE(refusal().find("in use"), std::string::npos);
  close(descriptor);
  EXPECT_EQ(refusal(), "");
}

// As through another mount of the folder: nobody's lock is seen, and ours is granted.
TEST_F(LeaseTest, AHolderThatLivesIsNotTakenOverWhereItsLockIsNotSeen) {
  const Lease lease(output, quick);
  const pid_t child = fork();
  if (child == 0) {
    let_fail(SYS_fcntl, 0, F_OFD_SETLK);
    const auto said = refusal();
    _exit(contains(said, "in use by the run on host ") ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(lease.lost(), std::nullopt);
}

TEST_F(LeaseTest, OnlyAProcessThatIsKnownToBeGoneIsTakenOverAtOnce) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  const pid_t zombie = fork();
  if (zombie == 0) _exit(0);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT);
  const auto told = [&](pid_t pid, const std::string& pid_namespace) {
    write_local(pid, pid_namespace);
    testing::internal::CaptureStderr();
    EXPECT_NO_THROW(Lease(output, {.beat = milliseconds(20), .stale = milliseconds(300)}));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(gone, pid_namespace()), "");
  EXPECT_EQ(told(zombie, pid_namespace()), "");
  waitpid(zombie, nullptr, 0);
  EXPECT_PRED2(contains, told(gone, "pid:[1]"), "gave its last sign 0 s ago");
  EXPECT_PRED2(contains, told(gone, ""), "gave its last sign 0 s ago");
  EXPECT_PRED2(contains, told(getppid(), pid_namespace()), "gave its last sign 0 s ago");
}

// Two containers on one kernel: the lock is seen, the process is not.
TEST_F(LeaseTest, ALockThatIsHeldInAnotherContainerIsARunThatLives) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  const Lease lease(output, {.beat = std::chrono::hours(1)});
  const auto refused = [&](const std::string& inside) {
    write_local(gone, inside);  // into the file that is locked
    return skein::refusal<UserError>([&] { check_lease(output); });
  };
  EXPECT_PRED2(contains, refused("pid:[1]"), "in use");
  write_local(gone, pid_namespace());
  EXPECT_NO_THROW(check_lease(output)) << "ranks of a killed launcher";
}

// Whoever may write the folder writes no lines of our log.
TEST_F(LeaseTest, AHoldersWordsStandOnOneLine) {
  fs::create_directories(output);
  std::ofstream(output / ".skein-lease")
      << R"({"host":"h\nerror: forged","boot":"other","pid":7,"since":"\u001b[2J\n","token":"t"})";
  touch_foreign(31);
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(), "");
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_PRED2(contains, told, R"(host h\nerror: forged, pid 7, since \x1b[2J\n)");
  EXPECT_FALSE(contains(told, "\nerror")) << told;
}

TEST_F(LeaseTest, AnotherMachinesHeartbeatDecides) {
  write_foreign(0);
  std::atomic<bool> ended = false;
  std::thread other([&] {  // it lives: its file is touched now and then
    for (int64_t age = 1; !ended; age = age % 20 + 1) {
      std::this_thread::sleep_for(milliseconds(20));
      touch_foreign(age);
    }
  });
  const auto said = refusal();
  ended = true;
  other.join();
  EXPECT_NE(said.find("in use by the run on host host-b, pid 77, since noon"), std::string::npos)
      << said;
  write_foreign(31);
  testing::internal::CaptureStderr();
  EXPECT_EQ(refusal(), "");
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("host-b, pid 77, since noon has given no sign for 3"), std::string::npos)
      << told;
}

// The other machine died just now; the same command on this one waits and goes on.
TEST_F(LeaseTest, AnotherMachinesLastBeatIsWatchedUntilItIsStale) {
  write_foreign(0);
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(Lease(output, {.beat = milliseconds(20), .stale = milliseconds(300)}));
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("host-b, pid 77, since noon gave its last sign 0 s ago"), std::string::npos)
      << told;
  EXPECT_NE(told.find("taken over"), std::string::npos) << told;
}

// Its clock was ahead of the file server's: it is watched as long as any other.
TEST_F(LeaseTest, ALastBeatInTheFutureIsWatchedNoLonger) {
  write_foreign(-3600);
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(Lease(output, {.beat = milliseconds(20), .stale = milliseconds(300)}));
  const auto told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("gave its last sign 0 s ago"), std::string::npos) << told;
  EXPECT_NE(told.find("taken over"), std::string::npos) << told;
}

// A file server keeps a dead machine's locks for a while.
TEST_F(LeaseTest, AnotherMachinesLockIsWaitedForWithItsBeat) {
  write_foreign(0);
  const LeaseTimes times{
      .beat = milliseconds(20), .stale = milliseconds(100), .locks_end = milliseconds(300)};
  const File server(open((output / ".skein-lease").c_str(), O_RDWR | O_CLOEXEC));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(server.descriptor(), F_OFD_SETLK, &whole), 0);
  EXPECT_THROW(Lease(output, times), UserError) << "it never ends";
  touch_foreign(0);
  std::thread forget([&] {
    std::this_thread::sleep_for(milliseconds(150));
    whole.l_type = F_UNLCK;
    fcntl(server.descriptor(), F_OFD_SETLK, &whole);
  });
  EXPECT_NO_THROW(Lease(output, times));
  forget.join();
}

TEST_F(LeaseTest, WithoutLocksOneOfTwoThatStartAtOnceHasIt) {
  const Line one, other;
  const std::array children = {fork_lockless(output, one), fork_lockless(output, other)};
  for (const auto* line : {&one, &other}) EXPECT_EQ(Line::hear(line->to_test), 'w');
  for (const auto* line : {&one, &other}) Line::say(line->to_child, 'g');  // both found it free
  std::string ends;
  for (const auto* line : {&one, &other}) ends += Line::hear(line->to_test);
  EXPECT_TRUE(ends == "hr" || ends == "rh") << ends;
  for (const auto& entry : fs::directory_iterator(output)) {
    EXPECT_EQ(entry.path().filename(), ".skein-lease");
  }
  for (const pid_t child : children) end_process(child);
}

TEST_F(LeaseTest, ABeatThatFailsIsTold) {
  const auto said = folder / "said";
  const pid_t child = fork();
  if (child == 0) {
    let_fail(SYS_utimensat, EPERM);
    dup2(open(said.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    const Lease lease(output, quick);
    pause();
  }
  std::string text;
  for (int i = 0; i < 2000 && !contains(text, "\n"); ++i) {
    std::this_thread::sleep_for(milliseconds(5));
    if (fs::exists(said)) text = read_file(said);
  }
  end_process(child);
  EXPECT_PRED2(contains, text, "warning: the lease of ");
  EXPECT_PRED2(contains, text, "cannot be touched: Operation not permitted");
}

TEST_F(LeaseTest, TheHolderBeats) {
  const Lease lease(output, quick);
  const auto path = output / ".skein-lease";
  const timespec past[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  utimensat(AT_FDCWD, path.c_str(), past, 0);
  struct stat info{};
  for (int i = 0; i < 1000 && (stat(path.c_str(), &info) != 0 || info.st_mtim.tv_sec == 1000); ++i)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_GT(info.st_mtim.tv_sec, 1000);
}

TEST_F(LeaseTest, ATakeoverIsNoticedAndLeftAlone) {
  {
    const Lease lease(output, quick);
    write_foreign(0);
    for (int i = 0; i < 1000 && !lease.lost(); ++i) std::this_thread::sleep_for(milliseconds(5));
    ASSERT_TRUE(lease.lost());
    EXPECT_NE(lease.lost()->find("was taken over by the run on host host-b"), std::string::npos);
  }
  EXPECT_TRUE(fs::exists(output / ".skein-lease"));
}

TEST_F(LeaseTest, AFenceKnowsTheRunAndTheFolder) {
  const Lease lease(output);  // whose own beat is far away
  const Fence fence(output, lease.token());
  EXPECT_EQ(fence.lost(), std::nullopt);
  EXPECT_NO_THROW(fence.check());
  const auto record = read_file(output / ".skein-lease");

  fs::rename(output, folder / "moved");
  EXPECT_THROW(fence.lost(), IoError);  // nobody else has it: not lost, out of sight
  fs::create_directory(output);
  std::ofstream(output / ".skein-lease") << record;  // another folder, with a copy
  EXPECT_PRED2(contains, fence.lost().value_or(""), "another folder");
  EXPECT_THROW(fence.check(), CommError);

  fs::remove_all(output);
  fs::rename(folder / "moved", output);
  EXPECT_EQ(fence.lost(), std::nullopt);
  write_foreign(0);
  EXPECT_PRED2(contains, fence.lost().value_or(""), "taken over by the run on host host-b");
  EXPECT_EQ(lease.lost(), std::nullopt);
  lease.look();
  EXPECT_TRUE(lease.lost());
  fs::remove(output / ".skein-lease");  // that run has ended
  EXPECT_PRED2(contains, fence.lost().value_or(""), ".skein-lease is gone");
}

TEST_F(LeaseTest, ARecordThatWasWipedIsWrittenAgain) {
  const Lease lease(output, quick);
  const auto written = record();
  for (const char* content : {"", "x", "{}"}) {
    std::ofstream(output / ".skein-lease") << content;
    for (int i = 0; i < 1000 && record() != written; ++i)
      std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(record(), written);
    EXPECT_NO_THROW(Fence(output, lease.token()).check());
  }
  EXPECT_EQ(lease.lost(), std::nullopt);
}

TEST_F(LeaseTest, AFolderThatIsMovedAwayIsLost) {
  const Lease lease(output, quick);
  const Fence fence(output, lease.token());
  fs::rename(output, folder / "moved");
  for (int i = 0; i < 1000 && !lease.lost(); ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_PRED2(contains, lease.lost().value_or(""), "out is gone: it was moved or removed");
  EXPECT_THROW(fence.check(), IoError);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_THROW(fence.check(), IoError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(2000));  // it waits no more
  EXPECT_FALSE(fs::exists(output));
}

TEST_F(LeaseTest, WhoLosesItIsTold) {
  std::atomic<int> told = 0;
  const Lease lease(output, quick, [&](const std::string&) { ++told; });
  write_foreign(0);
  for (int i = 0; i < 1000 && told == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(told, 1);
}

TEST_F(LeaseTest, ADamagedRecordIsNobodys) {
  fs::create_directories(output);
  for (const char* content : {"", "{", "[]", "{\"host\": 1}", "null\n"}) {
    std::ofstream(output / ".skein-lease") << content;
    EXPECT_EQ(refusal(), "") << content;
  }
}

class FullDisk final : public FileSystem {
  ssize_t write(int, std::span<const std::byte>, uint64_t) override {
    errno = ENOSPC;
    return -1;
  }
};

TEST_F(LeaseTest, AFullDiskLeavesNothing) {
  FullDisk disk;
  const ScopedFileSystem scope(disk);
  EXPECT_THROW(Lease(output, quick), IoError);
  EXPECT_TRUE(fs::is_empty(output));
}

// Whatever a process lacks when it has taken the file: descriptors, or a thread.
TEST_F(LeaseTest, WhatCannotBeHeldIsGivenBack) {
  const auto try_with = [&](const std::function<void()>& limit) {
    const pid_t child = fork();
    if (child == 0) {
      limit();
      try {
        const Lease lease(output, quick);
        _exit(8);
      } catch (const std::exception&) {
        _exit(7);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == 8) fs::remove(output / ".skein-lease");  // left by _exit()
    EXPECT_FALSE(fs::exists(output / ".skein-lease"));
    return WEXITSTATUS(status);
  };
  int refused = 0;
  for (rlim_t descriptors = 3; descriptors < 40; ++descriptors) {
    const rlimit limit{descriptors, descriptors};
    if (try_with([&] { setrlimit(RLIMIT_NOFILE, &limit); }) == 7) ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 37);
  EXPECT_EQ(try_with([] { let_fail(SYS_clone3, EAGAIN); }), 7);
}

TEST_F(LeaseTest, ALinkIsNotFollowed) {
  fs::create_directories(output);
  std::ofstream(folder / "precious") << "kept";
  fs::create_symlink(folder / "precious", output / ".skein-lease");
  EXPECT_THROW(Lease{output}, IoError);
  std::string content;
  std::ifstream(folder / "precious") >> content;
  EXPECT_EQ(content, "kept");
}

TEST_F(LeaseTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder / "file") << "x";
  EXPECT_PRED2(contains,
               skein::refusal<IoError>([&] { const Lease lease(folder / "file" / "out"); }),
               "file/out");
}

}  // namespace
}  // namespace skein::launch
