// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/outputs.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/launch/process/child.h"

namespace skein::launch {
namespace {

struct OutputsTest : testing::Test {
  fs::path folder;
  void SetUp() override { folder = make_temporary_folder("outputs"); }
  void TearDown() override { fs::remove_all(folder); }

  OutputPlan plan(std::vector<int> redirects, std::vector<int> tees,
                  std::vector<int> shown = {}) const {
    return {folder, std::move(redirects), std::move(tees), std::move(shown)};
  }
  std::string text(const std::string& name) const { return read_file(folder / name); }
};

struct Shown {
  std::string out, error;
};

// Runs a shell per rank and returns what reached the launcher's own streams.
Shown run_script(const OutputPlan& plan, int ranks, const std::string& script, int first_rank = 0) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    Outputs outputs(plan, first_rank, ranks, /*attempt=*/0);
    std::vector<Child> children;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto streams = outputs.streams_of(rank);
      children.emplace_back(
          ChildCommand{.arguments = {"/bin/sh", "-c", script},
                       .environment = {"RANK=" + std::to_string(first_rank + rank)},
                       .inherited = {},
                       .out = streams.out,
                       .error = streams.error,
                       .cpus = {}});
    }
    outputs.close_child_ends();
    for (auto& child : children) {
      while (!child.reap()) {
        std::vector<pollfd> entries{{child.descriptor(), POLLIN, 0}};
        outputs.add_to(entries);
        poll(entries.data(), entries.size(), 5000);
        outputs.copy_ready();
      }
    }
  }
  Shown shown;
  shown.out = testing::internal::GetCapturedStdout();
  shown.error = testing::internal::GetCapturedStderr();
  return shown;
}

TEST_F(OutputsTest, NothingAskedLeavesTheStreamsAlone) {
  const auto shown = run_script({}, 1, "echo out; echo error >&2");
  EXPECT_EQ(shown.out, "out\n");
  EXPECT_EQ(shown.error, "error\n");
  const Outputs outputs({}, 0, 1, 0);
  EXPECT_EQ(outputs.streams_of(0).error_file, "");
  EXPECT_EQ(outputs.where(0), "");
}

TEST_F(OutputsTest, ARedirectedStreamGoesToItsFileAlone) {
  const auto shown = run_script(plan({1, 3}, {}), 2, "echo out $RANK; echo error $RANK >&2");
  EXPECT_EQ(shown.out, "");
  EXPECT_EQ(shown.error, "error 0\n");
  EXPECT_EQ(text("attempt_0/0/stdout.log"), "out 0\n");
  EXPECT_EQ(text("attempt_0/1/stderr.log"), "error 1\n");
  EXPECT_FALSE(fs::exists(folder / "attempt_0/0/stderr.log"));
}

TEST_F(OutputsTest, HiddenErrorsAreKnown) {
  EXPECT_FALSE(hides_errors({}, 2));
  EXPECT_FALSE(hides_errors(plan({1, 1}, {0, 3}), 2));
  EXPECT_FALSE(hides_errors(plan({0, 3}, {0, 3}), 2));
  EXPECT_TRUE(hides_errors(plan({0, 2}, {}), 2));
  EXPECT_FALSE(hides_errors(plan({0, 2}, {}), 1));
  EXPECT_TRUE(hides_errors(plan({}, {}, {1}), 2));
}

TEST_F(OutputsTest, ATeedStreamGoesToBothWithItsRank) {
  const auto shown = run_script(plan({3}, {3}), 1,
                                "echo out; echo '[rank 4] told'; printf half; "
                                "echo error >&2",
                                /*first_rank=*/4);
  EXPECT_EQ(shown.out, "[rank 4] out\n[rank 4] told\n[rank 4] half\n");
  EXPECT_EQ(shown.error, "[rank 4] error\n");
  EXPECT_EQ(text("attempt_0/4/stdout.log"), "out\n[rank 4] told\nhalf");
  EXPECT_EQ(text("attempt_0/4/stderr.log"), "error\n");
}

TEST_F(OutputsTest, AFilteredRankShowsNothing) {
  const auto shown = run_script(plan({}, {0, 0, 1}, {0}), 3, "echo out $RANK");
  EXPECT_EQ(shown.out, "out 0\n");
  EXPECT_EQ(text("attempt_0/2/stdout.log"), "out 2\n");
  EXPECT_FALSE(fs::exists(folder / "attempt_0/1/stdout.log"));
}

TEST_F(OutputsTest, FilesGrowOverStartsAndStaleErrorFilesGo) {
  run_script(plan({1}, {}), 1, "echo first");
  write_file_atomically(folder / "attempt_0/0/error.json", "{}");
  run_script(plan({1}, {}), 1, "echo second");
  EXPECT_EQ(text("attempt_0/0/stdout.log"), "first\nsecond\n");
  EXPECT_FALSE(fs::exists(folder / "attempt_0/0/error.json"));
  const Outputs outputs(plan({3}, {}), 0, 1, 2);
  EXPECT_EQ(outputs.streams_of(0).error_file, (folder / "attempt_2/0/error.json").string());
  EXPECT_EQ(outputs.where(0), (folder / "attempt_2/0/stderr.log").string());
}

TEST_F(OutputsTest, MuchOutputArrivesWhole) {
  const auto shown = run_script(plan({}, {1, 1}), 2,
                                "i=0; while [ $i -lt 5000 ]; do echo line $i of $RANK; "
                                "i=$((i+1)); done");
  EXPECT_EQ(std::count(shown.out.begin(), shown.out.end(), '\n'), 10000);
  EXPECT_NE(shown.out.find("\n[rank 1] line 4999 of 1\n"), std::string::npos);
}

TEST_F(OutputsTest, AFullDiskGivesOneWarning) {
  // A file that may not grow is as good as a full disk; what else is written here is shorter.
  constexpr rlim_t kMost = 1 << 20;
  fs::create_directories(folder / "attempt_0/0");
  std::ofstream(folder / "attempt_0/0/stdout.log") << std::string(kMost, 'x');
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{.rlim_cur = kMost, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto shown = run_script(plan({}, {1}), 1, "echo one; sleep 0.1; echo two");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, before);
  EXPECT_EQ(shown.out, "[rank 0] one\n[rank 0] two\n");
  EXPECT_NE(shown.error.find("stdout.log: File too large; the run goes on"), std::string::npos)
      << shown.error;
  EXPECT_EQ(std::count(shown.error.begin(), shown.error.end(), '\n'), 1);
}

TEST_F(OutputsTest, ALinkIsNotFollowed) {
  fs::create_directories(folder / "attempt_0/0");
  std::ofstream(folder / "precious") << "kept";
  fs::create_symlink(folder / "precious", folder / "attempt_0/0/stdout.log");
  EXPECT_THROW(Outputs(plan({}, {1}), 0, 1, 0), IoError);
  EXPECT_EQ(fs::file_size(folder / "precious"), 4u);
}

// Nobody reads the launcher's stdout: the rank still ends, its file is whole.
TEST_F(OutputsTest, AStuckTerminalHoldsNobody) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int before = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  {
    Outputs outputs(plan({}, {1}), 0, 1, 0);
    Child child({.arguments = {"/bin/sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' 'x' | fold"},
                 .environment = {"PATH=/usr/bin:/bin"},
                 .inherited = {},
                 .out = outputs.streams_of(0).out,
                 .cpus = {}});
    outputs.close_child_ends();
    while (!child.reap()) {
      outputs.copy_ready();
      usleep(1000);
    }
  }
  dup2(before, STDOUT_FILENO);
  for (const int descriptor : {before, ends[0], ends[1]}) close(descriptor);
  EXPECT_EQ(fs::file_size(folder / "attempt_0/0/stdout.log"), 3037499u);
}

TEST(ChildCpus, AreThoseAsked) {
  char name[] = "/tmp/skein-cpus-XXXXXX";
  const File file(mkstemp(name));
  Child child({.arguments = {"/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status"},
               .environment = {"PATH=/usr/bin:/bin"},
               .inherited = {},
               .out = file.descriptor(),
               .cpus = {0}});
  while (!child.reap()) usleep(1000);
  EXPECT_EQ(read_file(name), "Cpus_allowed_list:\t0\n");
  unlink(name);
}

}  // namespace
}  // namespace skein::launch
