// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/engine.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "skein/spill/testing.h"

namespace skein::spill {
namespace {

TEST(Transfer, IsCarriedToItsEndByWhatCallsReturn) {
  AlignedBytes bytes(3 * kAlignment);
  Transfer transfer{.offset = kAlignment, .memory = bytes.all()};
  EXPECT_TRUE(transfer.take(-EINTR));
  EXPECT_TRUE(transfer.take(kAlignment));
  EXPECT_TRUE(transfer.take(-EAGAIN));
  EXPECT_EQ(transfer.rest_offset(), 2 * kAlignment);
  EXPECT_EQ(transfer.rest().size(), 2 * kAlignment);
  EXPECT_FALSE(transfer.take(2 * kAlignment));
  EXPECT_EQ(transfer.failure, 0);
  EXPECT_FALSE(transfer.ended);
}

TEST(Transfer, EndsAtAFailureAndAtTheEndOfTheFile) {
  AlignedBytes bytes(2 * kAlignment);
  Transfer failed{.memory = bytes.all()};
  EXPECT_FALSE(failed.take(-EIO));
  EXPECT_EQ(failed.failure, EIO);
  Transfer at_end{.memory = bytes.all()};
  EXPECT_TRUE(at_end.take(kAlignment));
  EXPECT_FALSE(at_end.take(0));
  EXPECT_TRUE(at_end.ended);
  Transfer inside_a_sector{.memory = bytes.all()};
  EXPECT_FALSE(inside_a_sector.take(100));
  EXPECT_TRUE(inside_a_sector.ended);
}

TEST(Transfer, PatienceHasAnEnd) {
  AlignedBytes bytes(kAlignment);
  Transfer transfer{.memory = bytes.all()};
  int calls = 0;
  while (transfer.take(-EAGAIN)) ++calls;
  EXPECT_GT(calls, 100);
  EXPECT_EQ(transfer.failure, EAGAIN);
}

class EngineTest : public TemporaryFolder {
 protected:
  // Both, or threads alone where io_uring is forbidden.
  static std::vector<std::unique_ptr<Engine>> engines(const File& file) {
    std::vector<std::unique_ptr<Engine>> made;
    made.push_back(make_thread_engine(file.descriptor(), 2));
    std::string refusal;
    if (auto uring = make_uring_engine(file.descriptor(), 2, refusal)) {
      made.push_back(std::move(uring));
    }
    return made;
  }
};

TEST_F(EngineTest, AFileThatEndsEarlyEndsTheTransfer) {
  const auto file = File::create(folder_ / "file", File::Access::kReadWrite);
  file.resize(kAlignment + 100);
  for (const auto& engine : engines(file)) {
    AlignedBytes bytes(2 * kAlignment);
    Transfer transfer{.memory = bytes.all()};
    engine->start(transfer);
    engine->finish(transfer);
    EXPECT_TRUE(transfer.ended);
    EXPECT_EQ(transfer.carried, kAlignment + 100);
  }
}

TEST_F(EngineTest, AFailureIsToldByItsNumber) {
  write("file", "");
  const auto file = File::open_to_read(folder_ / "file");
  for (const auto& engine : engines(file)) {
    AlignedBytes bytes(kAlignment);
    Transfer transfer{.kind = Transfer::Kind::kWrite, .memory = bytes.all()};
    engine->start(transfer);
    engine->finish(transfer);
    EXPECT_EQ(transfer.failure, EBADF);
  }
}

TEST_F(EngineTest, ManyTransfersPassAFewAtATime) {
  const auto file = File::create(folder_ / "file", File::Access::kReadWrite);
  for (const auto& engine : engines(file)) {
    constexpr uint64_t kCount = 100;
    AlignedBytes bytes(kCount * kAlignment);
    bytes.fill(3);
    std::vector<Transfer> transfers(kCount);
    for (uint64_t i = 0; i < kCount; ++i) {
      transfers[i] = {.kind = Transfer::Kind::kWrite,
                      .offset = i * kAlignment,
                      .memory = bytes.part(i * kAlignment, kAlignment)};
      engine->start(transfers[i]);
    }
    for (auto& transfer : transfers) engine->finish(transfer);
    std::vector<std::byte> found(kCount * kAlignment);
    file.read_at(0, found);
    EXPECT_TRUE(equal(found, bytes.all()));
  }
}

// As a container's rules do; or, by another number, as an older kernel where little may be locked.
void forbid_io_uring(unsigned failure = EPERM) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | failure),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(rules), .filter = rules};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::abort();
  }
}

void limit_locked_memory() {
  const rlimit limit{4096, 4096};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) std::abort();
}

// Two files, written and read; 0 when threads did it.
int try_without_io_uring(const fs::path& folder) {
  const AlignedBytes written(kTestSize), read(kTestSize);
  written.fill(4);
  bool uring = false, right = true;
  for (int i = 0; i < 2; ++i) {
    SpillFile file(folder, kTestSize, {.block_bytes = kTestBlock, .depth = 5});
    write_all(file, written);
    read_all(file, read);
    uring = uring || file.uses_io_uring();
    right = right && equal(written.all(), read.all());
  }
  return uring ? 2 : right ? 0 : 1;
}

using EngineDeathTest = EngineTest;

TEST_F(EngineDeathTest, WhereIoUringIsForbiddenThreadsDoItAndThatIsSaidOnce) {
  EXPECT_EXIT(
      {
        forbid_io_uring();
        std::exit(try_without_io_uring(folder_));
      },
      testing::ExitedWithCode(0),
      "^[^\n]*io_uring is not used \\(Operation not permitted\\): 5 threads[^\n]*\n$");
}

TEST_F(EngineDeathTest, WhereARingMayNotBeLockedItIsSaidWhatToType) {
  EXPECT_EXIT(
      {
        limit_locked_memory();
        forbid_io_uring(ENOMEM);
        std::exit(try_without_io_uring(folder_));
      },
      testing::ExitedWithCode(0),
      "^[^\n]*io_uring is not used \\(a process may lock 4.0 KiB here, [0-9]+ bytes are needed: "
      "type `ulimit -l [0-9]+` [^\n]*LimitMEMLOCK=[0-9]+[^\n]*\\): 5 threads[^\n]*\n$");
}

TEST_F(EngineDeathTest, AVariableTurnsItOff) {
  EXPECT_EXIT(
      {
        ::setenv("SKEIN_IO_URING", "0", 1);
        std::exit(try_without_io_uring(folder_));
      },
      testing::ExitedWithCode(0), "io_uring is not used \\(SKEIN_IO_URING=0\\)");
}

}  // namespace
}  // namespace skein::spill
