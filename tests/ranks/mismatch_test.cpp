// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Ranks that do not act together, under the real launcher: what is reported, and how soon.
//
// The program plays three roles: the tests, a launcher (`--launch SCENARIO RANKS FOLDER`) and a
// rank
// (`--rank SCENARIO FOLDER`).

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>

#include "skein/core/testing.h"
#include "skein/launch/ranks/launcher.h"
#include "tests/ranks/mismatch_rank.h"

namespace skein::ranks {
namespace {

using std::chrono::milliseconds;

const launch::Limits kLimits{.collective = milliseconds(2000),
                             .first_step = milliseconds(2000),
                             .join = milliseconds(3000),
                             .heartbeat = milliseconds(1500)};

std::string self() { return fs::read_symlink("/proc/self/exe").string(); }

int launch_scenario(const std::string& scenario, int ranks, const std::string& folder) {
  launch::LaunchOptions options;
  options.grace = milliseconds(500);
  options.limits = kLimits;
  return launch::launch({.local_ranks = ranks}, {self(), "--rank", scenario, folder}, options);
}

int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Result {
  int code = -1;
  std::string report;
  int64_t ms_after_deed = 0;  // when the launcher has ended
};

class Mismatch : public testing::Test {
 protected:
  void SetUp() override { folder = make_temporary_folder("mismatch"); }
  void TearDown() override { fs::remove_all(folder); }

  Result run(const std::string& scenario, int ranks, bool shared_memory = true) const {
    const auto said = (folder / "stderr").string();
    const auto count = std::to_string(ranks);
    const pid_t child = ::fork();
    if (child == 0) {
      const int file = ::open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(file, 2);
      ::setenv("SKEIN_SHARED_MEMORY", shared_memory ? "1" : "0", 1);
      ::execl(self().c_str(), self().c_str(), "--launch", scenario.c_str(), count.c_str(),
              folder.c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    Result result{.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
                  .report = read_file(said)};
    if (fs::exists(folder / "deed")) {
      result.ms_after_deed = now_ms() - std::stoll(read_file(folder / "deed"));
    }
    return result;
  }

  // Reported within `most` of the deadline, with all the parts.
  static void expect_report(const Result& result, milliseconds deadline,
                            const std::vector<std::string>& parts, milliseconds most,
                            int code = 3) {
    EXPECT_EQ(result.code, code) << result.report;
    for (const auto& part : parts) {
      EXPECT_NE(result.report.find(part), std::string::npos) << part << "\n" << result.report;
    }
    EXPECT_GT(result.ms_after_deed, 0) << result.report;
    EXPECT_LT(result.ms_after_deed, (deadline + most).count()) << result.report;
    RecordProperty("ms_after_deed", static_cast<int>(result.ms_after_deed));
  }

  fs::path folder;
};

constexpr milliseconds kSoon{5000};

TEST_F(Mismatch, AnotherOperation) {
  expect_report(run("op", 3), milliseconds(1000),
                {"calls #7 do not match", "all_reduce of 12 float32", "mismatch_rank.cpp:",
                 "broadcast from rank 1 of 12 float32", "rank 0 on", "rank 1 on"},
                kSoon);
}

TEST_F(Mismatch, AnotherSize) {
  const std::vector<std::string> parts{"calls #7 do not match", "all_reduce of 8 float32",
                                       "all_reduce of 16 float32", "rank 1 on"};
  expect_report(run("size", 2), milliseconds(1000), parts, kSoon);
  // Gloo ends a process that receives too much: SIGABRT.
  expect_report(run("size", 2, /*shared_memory=*/false), milliseconds(1000), parts, kSoon,
                /*code=*/1);
}

TEST_F(Mismatch, AnotherTypeOfTheSameWidth) {
  for (const bool shared_memory : {true, false}) {
    expect_report(
        run("dtype", 2, shared_memory), milliseconds(1000),
        {"calls #7 do not match", "all_reduce of 8 float32", "all_reduce of 8 int32", "rank 1 on"},
        kSoon);
  }
}

TEST_F(Mismatch, ALatePeer) {
  expect_report(run("late", 3), kLimits.collective,
                {"rank 1 on", "is late", "in backward of step 3", "its last call was call #6",
                 "ranks 0, 2 waited", "call #7, all_reduce of 12 float32"},
                kSoon);
}

TEST_F(Mismatch, ALatePeerInAnAgreementUnderWay) {
  expect_report(run("late-agreement", 3), kLimits.collective,
                {"rank 1 on", "is late", "in backward of step 3", "its last call was call #6",
                 "ranks 0, 2 waited", "call #7, host sum of 1 int64", "mismatch_rank.cpp:"},
                kSoon);
}

TEST_F(Mismatch, AStoppedProcess) {
  expect_report(run("sigstop-self", 3), kLimits.heartbeat,
                {"rank 1 on", "has been stopped (SIGSTOP)", "in backward of step 3",
                 "ranks 0, 2 waited", "call #7, all_reduce of 12 float32"},
                kSoon);
}

TEST_F(Mismatch, ARankThatNeverJoins) {
  expect_report(run("never-joins", 3), kLimits.join,
                {"rank 1 of 3 did not join within 3.0 s; ranks 0, 2 waited", "rank 1 on"},
                milliseconds(15'000));
}

std::optional<int> play_role(const std::vector<std::string>& words) {
  if (words.size() == 5 && words[1] == "--launch") {
    return launch_scenario(words[2], std::stoi(words[3]), words[4]);
  }
  if (words.size() == 4 && words[1] == "--rank") return run_bad_rank(words[2], words[3]);
  return std::nullopt;
}

}  // namespace
}  // namespace skein::ranks

int main(int argc, char** argv) {
  at::set_num_threads(1);
  if (const auto code = skein::ranks::play_role({argv, argv + argc})) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
