// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "skein/core/testing.h"

namespace skein {
namespace {

class HostMemoryTest : public TemporaryFolder {
 protected:
  HostMemoryTest() { write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n"); }

  KernelFolders folders_{folder_ / "proc", folder_ / "cgroups"};
};

TEST_F(HostMemoryTest, WithoutALimitItIsTheMachines) {
  EXPECT_EQ(memory_limit(folders_), std::nullopt);
  EXPECT_EQ(available_memory(folders_), 8000U * 1024);
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroups/a/b/memory.max", "max\n");
  EXPECT_EQ(memory_limit(folders_), std::nullopt);
  EXPECT_EQ(available_memory(folders_), 8000U * 1024);
}

TEST_F(HostMemoryTest, TheTightestGroupCounts) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroups/a/b/memory.max", "5000000\n");
  write("cgroups/a/b/memory.current", "1000000\n");
  write("cgroups/a/memory.max", "4000000\n");
  write("cgroups/a/memory.current", "3500000\n");
  write("cgroups/a/memory.stat", "anon 1\nactive_file 7\ninactive_file 300000\n");
  EXPECT_EQ(memory_limit(folders_), 4'000'000U);
  EXPECT_EQ(available_memory(folders_), 800'000U);
  write("cgroups/a/memory.current", "9000000\n");  // beyond its limit
  EXPECT_EQ(available_memory(folders_), 0U);
}

TEST_F(HostMemoryTest, VersionOne) {
  write("proc/self/cgroup", "7:cpu:/x\n4:memory:/job\n");
  write("cgroups/memory/job/memory.limit_in_bytes", "3000000\n");
  write("cgroups/memory/job/memory.usage_in_bytes", "2000000\n");
  write("cgroups/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\n");
  write("cgroups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_limit(folders_), 3'000'000U);
  EXPECT_EQ(available_memory(folders_), 1'500'000U);
}

TEST(HostMemory, OfThisMachine) { EXPECT_GT(available_memory(), 0U); }

// The soft limit of locked memory, for as long as it lives.
class ScopedMemlock {
 public:
  explicit ScopedMemlock(rlim_t bytes) {
    ::getrlimit(RLIMIT_MEMLOCK, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
  }
  ScopedMemlock(const ScopedMemlock&) = delete;
  ScopedMemlock& operator=(const ScopedMemlock&) = delete;
  ~ScopedMemlock() { ::setrlimit(RLIMIT_MEMLOCK, &before_); }

 private:
  rlimit before_{};
};

TEST(MemlockAdvice, HasTheBytesAndWhatToType) {
  const ScopedMemlock limit(64 << 10);
  const auto advice = memlock_advice(1000000);
  for (const auto* part : {"may lock 64.0 KiB here, 1000000 bytes are needed", "`ulimit -l 977`",
                           "LimitMEMLOCK=1000000", "--ulimit memlock=1000000"}) {
    EXPECT_PRED2(contains, advice, part);
  }
  EXPECT_EQ(memlock_advice(64 << 10), "");
}

}  // namespace
}  // namespace skein
