// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <thread>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/testing.h"
#include "skein/launch/process/stop_request.h"
#include "skein/launch/ranks/rank_environment.h"
#include "skein/launch/watch/root_cause.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;

struct LauncherTest : testing::Test {
  fs::path folder;
  LaunchOptions options{.grace = milliseconds(300), .root_cause_window = milliseconds(500)};

  void SetUp() override {
    folder = make_temporary_folder("launch");
    setenv("FOLDER", folder.c_str(), 1);
    // Orphans come to us, so that their death can be waited for.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  void TearDown() override {
    fs::remove_all(folder);
    unsetenv("FOLDER");
  }

  static LaunchPlan plan(int ranks) { return {.local_ranks = ranks, .omp_num_threads = "7"}; }
  static std::vector<std::string> shell(const std::string& script) {
    return {"/bin/sh", "-c", script};
  }
  int run(int ranks, const std::string& script) {
    return launch(plan(ranks), shell(script), options);
  }
  // The same, with what it says.
  std::pair<int, std::string> run_and_listen(const LaunchPlan& plan, const std::string& script) {
    testing::internal::CaptureStderr();
    const int code = launch(plan, shell(script), options);
    return {code, testing::internal::GetCapturedStderr()};
  }

  // A launcher that can be signalled: in a process of its own.
  pid_t fork_launcher(int ranks, const std::string& script) {
    const pid_t pid = fork();
    if (pid == 0) {
      // Tests may run under nohup or behind a `&`, and what is ignored stays so.
      for (const int one : {SIGHUP, SIGINT}) std::signal(one, SIG_DFL);
      _exit(run(ranks, script));
    }
    return pid;
  }

  std::string text(const std::string& name) const {
    std::ifstream file(folder / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Scripts write a whole line; the line's end says that it is there.
  std::string wait_for_line(const std::string& name) const {
    for (int i = 0; i < 1000; ++i) {
      if (const auto content = text(name); content.ends_with('\n')) return content;
      std::this_thread::sleep_for(milliseconds(10));
    }
    ADD_FAILURE() << name << " did not come";
    return "0";
  }
};

int exit_code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(LauncherTest, EachRankKnowsItsPlace) {
  EXPECT_EQ(
      run(2,
          "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $OMP_NUM_THREADS > $FOLDER/$RANK"),
      0);
  EXPECT_EQ(text("0"), "0 2 0 2 7\n");
  EXPECT_EQ(text("1"), "1 2 1 2 7\n");
  EXPECT_EQ(run(1, "echo $OMP_NUM_THREADS $MKL_DYNAMIC $MKL_CBWR $SKEIN_DEVICE > $FOLDER/$RANK"),
            0);
  EXPECT_EQ(text("0"), "7 FALSE AUTO cpu\n");
}

TEST_F(LauncherTest, AFailedRankEndsTheOthersWithItsCode) {
  const auto [code, said] = run_and_listen(plan(3), "[ $RANK = 1 ] && exit 4; exec sleep 60");
  EXPECT_EQ(code, 4);
  EXPECT_NE(said.find("rank 1 of 3"), std::string::npos) << said;
  EXPECT_NE(said.find("exit code 4"), std::string::npos) << said;
  EXPECT_EQ(said.find("rank 0"), std::string::npos) << said;
}

// Of a shell, or of the system's loader when a library is missing.
TEST_F(LauncherTest, ACodeThatIsNotOursIsAnInternalError) {
  for (const char* code : {"126", "127", "9"}) {
    EXPECT_EQ(run(1, std::string("exit ") + code), 1) << code;
  }
}

TEST_F(LauncherTest, AUsersMistakeWasToldByTheRank) {
  const auto [code, said] = run_and_listen(plan(2), "[ $RANK = 1 ] && exit 2; exec sleep 60");
  EXPECT_EQ(code, 2);
  EXPECT_EQ(said, "");
}

TEST_F(LauncherTest, RestartsWhatARestartCanHeal) {
  auto twice = plan(2);
  twice.max_restarts = 2;
  options.output = folder / "out";
  // In the first two starts rank 1 fails, once rank 0 has written its line.
  const auto script =
      "echo $SKEIN_GENERATION >> $FOLDER/starts$RANK; [ $SKEIN_GENERATION -ge 2 ] && exit 0; "
      "[ $RANK = 0 ] && exec sleep 60; "
      "until grep -qsx $SKEIN_GENERATION $FOLDER/starts0; do sleep 0.01; done; exit 4";
  const auto [code, said] = run_and_listen(twice, script);
  EXPECT_EQ(code, 0) << said;
  EXPECT_EQ(text("starts0"), "0\n1\n2\n");
  EXPECT_EQ(text("starts1"), "0\n1\n2\n");
  EXPECT_NE(said.find("restarting (1 of 2)"), std::string::npos) << said;
  EXPECT_NE(said.find("restarting (2 of 2)"), std::string::npos) << said;
  EXPECT_FALSE(fs::exists(options.output / "failures.json")) << "ended well";
}

TEST_F(LauncherTest, AStartThatFailsIsNoStepThatFails) {
  auto often = plan(1);
  often.max_restarts = 4;
  options.output = folder / "out";
  const auto [code, said] = run_and_listen(often, "echo >> $FOLDER/starts; kill -SEGV $$");
  EXPECT_EQ(code, 1);
  EXPECT_EQ(text("starts"), "\n\n\n\n\n");
  EXPECT_EQ(said.find("times in a row"), std::string::npos) << said;
}

TEST_F(LauncherTest, AStartAfterNoTrainingContinuesNothing) {
  auto once = plan(1);
  once.max_restarts = 1;
  const auto [code, said] = run_and_listen(once, "echo $SKEIN_CONTINUES >> $FOLDER/starts; exit 4");
  EXPECT_EQ(code, 4);
  EXPECT_EQ(text("starts"), "0\n0\n");
}

TEST_F(LauncherTest, EachRankReadsTheConfigurationItIsHanded) {
  options.rank_configuration = "any bytes";
  EXPECT_EQ(run(2, "cat /proc/self/fd/$SKEIN_CONFIGURATION_FD > $FOLDER/$RANK"), 0);
  EXPECT_EQ(text("0"), "any bytes");
  EXPECT_EQ(text("1"), "any bytes");
}

TEST_F(LauncherTest, OneRunPerFolder) {
  options.output = folder / "out";
  const pid_t first = fork_launcher(1, "echo > $FOLDER/ready; exec sleep 60");
  wait_for_line("ready");
  EXPECT_THROW(run(1, "echo > $FOLDER/second"), UserError);
  EXPECT_FALSE(fs::exists(folder / "second"));
  kill(first, SIGKILL);
  exit_code_of(first);
  int status = 0;
  while (waitpid(-1, &status, 0) > 0) continue;  // its rank, which held the lease
  EXPECT_EQ(run(1, "exit 0"), 0);
}

TEST_F(LauncherTest, DataIsPreparedFirstAndItsFailureStartsNoRank) {
  options.prepare = [&]() -> std::string { throw IoError("no data"); };
  EXPECT_THROW(run(1, "echo > $FOLDER/started"), IoError);
  EXPECT_FALSE(fs::exists(folder / "started"));
}

// A disk that does not answer: the work neither ends nor looks for signals.
TEST_F(LauncherTest, AStopIsHeardWhileTheLauncherItselfWaits) {
  options.output = folder / "out";
  options.prepare = [&]() -> std::string {
    std::ofstream(folder / "waits") << "\n";
    for (;;) pause();
  };
  const pid_t launcher = fork_launcher(1, "echo > $FOLDER/started");
  wait_for_line("waits");
  EXPECT_TRUE(fs::exists(folder / "out/.skein-lease"));
  kill(launcher, SIGTERM);
  int status = 0;
  for (int i = 0; i < 2000 && waitpid(launcher, &status, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
    if (i == 1999) kill(launcher, SIGKILL);
  }
  ASSERT_TRUE(WIFEXITED(status)) << "it was not heard";
  EXPECT_EQ(WEXITSTATUS(status), 75);
  EXPECT_FALSE(fs::exists(folder / "out/.skein-lease"));
  EXPECT_FALSE(fs::exists(folder / "started"));
}

TEST_F(LauncherTest, AStopThatIsNotObeyedIsEnforced) {
  options.stop_grace = milliseconds(300);
  const pid_t launcher = fork_launcher(
      1, "trap 'echo > $FOLDER/asked' TERM; echo > $FOLDER/ready; while :; do sleep 0.05; done");
  wait_for_line("ready");
  kill(launcher, SIGTERM);
  EXPECT_EQ(exit_code_of(launcher), 3);
  EXPECT_EQ(text("asked"), "\n");
}

TEST_F(LauncherTest, ASignalIsNamed) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(2, "[ $RANK = 0 ] && kill -SEGV $$; exec sleep 60"), 1);
  const auto said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("SIGSEGV"), std::string::npos) << said;
}

TEST_F(LauncherTest, TheCauseWinsOverThoseWhoLostTheirPeer) {
  EXPECT_EQ(run(3, "case $RANK in 0) exit 3;; 1) sleep 0.1; exit 2;; 2) exec sleep 60;; esac"), 2);
  EXPECT_EQ(run(2, "[ $RANK = 0 ] && exit 3; exec sleep 60"), 3);
}

TEST_F(LauncherTest, ARankThatIgnoresTheRequestIsKilled) {
  EXPECT_EQ(run(2, "trap '' TERM; [ $RANK = 1 ] && exit 2; while :; do sleep 60; done"), 2);
}

TEST_F(LauncherTest, WhatARankLeavesBehindIsKilled) {
  EXPECT_EQ(run(1, "sleep 60 & echo $! > $FOLDER/pid"), 0);
  int status = 0;
  waitpid(std::stoi(text("pid")), &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
}

constexpr const char* kPoliteRank =
    "trap 'echo TERM >> $FOLDER/signals$RANK; exit 75' TERM; sleep 60 & "
    "echo $$ > $FOLDER/ready$RANK; wait; wait";

TEST_F(LauncherTest, AStopReachesEachRankOnce) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    const pid_t launcher = fork_launcher(2, kPoliteRank);
    for (const char* name : {"ready0", "ready1"}) wait_for_line(name);
    kill(launcher, signal);
    EXPECT_EQ(exit_code_of(launcher), 75);
    for (const char* name : {"signals0", "signals1"}) EXPECT_EQ(text(name), "TERM\n");
    for (const char* name : {"signals0", "signals1", "ready0", "ready1"}) fs::remove(folder / name);
  }
}

TEST_F(LauncherTest, TheSecondInterruptKills) {
  const pid_t launcher =
      fork_launcher(2,
                    "trap 'echo > $FOLDER/asked$RANK' TERM; echo > $FOLDER/ready$RANK; "
                    "while :; do sleep 0.05; done");
  for (const char* name : {"ready0", "ready1"}) wait_for_line(name);
  kill(launcher, SIGINT);
  for (const char* name : {"asked0", "asked1"}) wait_for_line(name);
  kill(launcher, SIGINT);
  EXPECT_EQ(exit_code_of(launcher), 130);
}

TEST_F(LauncherTest, RanksDieWithTheLauncher) {
  const pid_t launcher = fork_launcher(2, "echo $$ > $FOLDER/ready$RANK; exec sleep 60");
  const std::vector<pid_t> ranks = {std::stoi(wait_for_line("ready0")),
                                    std::stoi(wait_for_line("ready1"))};
  kill(launcher, SIGKILL);
  EXPECT_EQ(exit_code_of(launcher), -SIGKILL);
  for (const pid_t rank : ranks) EXPECT_EQ(exit_code_of(rank), -SIGKILL);
}

TEST_F(LauncherTest, AMissingProgramIsTheUsersError) {
  EXPECT_EQ(launch(plan(2), {(folder / "missing").string()}, options), 2);
}

// Run by the test below as two ranks.
TEST(LaunchedRank, DISABLED_MeetsTheOtherThroughTheStore) {
  const auto descriptor = std::stoi(std::getenv("SKEIN_SECRET_FD"));
  const auto self = from_environment();
  EXPECT_EQ(std::getenv("SKEIN_SECRET_FD"), nullptr);
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1) << "the secret's descriptor is still open";
  EXPECT_EQ(self.size, 2);
  const auto store = connect_store(self, std::chrono::seconds(60));
  store->set(fmt::format("from {}", self.rank), std::to_string(self.rank));
  EXPECT_EQ(store->get(fmt::format("from {}", 1 - self.rank), std::chrono::seconds(20)),
            std::to_string(1 - self.rank));
}

TEST_F(LauncherTest, RanksMeetThroughTheStore) {
  const auto self = fs::read_symlink("/proc/self/exe").string();
  EXPECT_EQ(launch(plan(2), {self, "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                             "--gtest_filter=LaunchedRank.DISABLED_Meets*"}),
            0);
}

// Run by the test below: a rank that trains and fails in the same step at every start.
TEST(LaunchedRank, DISABLED_FailsInStepEight) {
  const auto self = from_environment();
  ASSERT_GE(self.board, 0);
  board::attach_board(self.board);
  board::enter_phase(board::Phase::kBackward);
  board::set_board_step(7, std::vector<int64_t>{3, 5});
  board::report_failure("it always hurts here");
  if (self.configuration != "steps: 8") _exit(9);
  std::ofstream(fs::path(std::getenv("FOLDER")) / "starts", std::ios::app)
      << self.generation << (self.continues ? " again\n" : "\n");
  _exit(1);
}

TEST_F(LauncherTest, AStepThatAlwaysFailsIsNamedWithItsSamples) {
  const auto self = fs::read_symlink("/proc/self/exe").string();
  auto often = plan(1);
  often.max_restarts = 9;
  options.output = folder / "out";
  options.rank_configuration = "steps: 8";
  options.command = "skein train again.yaml";
  options.saved = [] { return fs::path("out/checkpoint-7"); };
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(often,
                   {self, "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                    "--gtest_filter=LaunchedRank.DISABLED_FailsInStepEight"},
                   options),
            1);
  const auto said = testing::internal::GetCapturedStderr();
  for (const char* part :
       {"rank 0 of 1", "step 8", "it always hurts here", "restarting (1 of 9)",
        "restarting (2 of 9)", "step 8 has failed 3 times in a row", "samples: 3, 5",
        "saved         out/checkpoint-7", "skein train again.yaml"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
  EXPECT_EQ(text("starts"), "0\n1 again\n2 again\n");
}

// Run by the test below: a rank that needs two rungs less than it is given.
TEST(LaunchedRank, DISABLED_NeedsLess) {
  const auto self = from_environment();
  board::attach_board(self.board);
  board::enter_phase(board::Phase::kForward);
  board::set_board_step(0, std::vector<int64_t>{3});
  std::ofstream(fs::path(std::getenv("FOLDER")) / "starts", std::ios::app)
      << self.generation << " " << self.configuration << " '" << self.given_up << "' "
      << self.may_give_up << "\n";
  if (self.given_up == "batch=1") _exit(0);
  board::report_failure("no room\nat all");
  board::report_out_of_memory();
  _exit(2);
}

TEST_F(LauncherTest, RanksWithoutMemoryStartAgainWithLess) {
  const std::vector<std::string> arguments = {fs::read_symlink("/proc/self/exe").string(),
                                              "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                                              "--gtest_filter=LaunchedRank.DISABLED_NeedsLess"};
  const auto launched = [&](const LaunchOptions& given) {
    fs::remove(folder / "starts");
    testing::internal::CaptureStderr();
    const int code = launch(plan(1), arguments, given);
    return std::pair(code, testing::internal::GetCapturedStderr());
  };
  options.rank_configuration = "all";
  options.ladder = {.given_up = "",
                    .lower = [](const std::string& given_up) -> std::string {
                      return given_up.empty() ? "batch=2" : given_up == "batch=2" ? "batch=1" : "";
                    },
                    .configure = [](const std::string& words) { return "without " + words; }};
  const auto [code, said] = launched(options);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text("starts"),
            "0 all '' 1\n1 without batch=2 'batch=2' 1\n2 without batch=1 'batch=1' 1\n");
  EXPECT_NE(said.find("rank 0 of 1 ran out of memory in its first update (no room): starting again "
                      "with batch=1"),
            std::string::npos)
      << said;

  options.ladder->given_up = "batch=1";  // as recorded
  EXPECT_EQ(launched(options).first, 0);
  EXPECT_EQ(text("starts"), "0 without batch=1 'batch=1' 1\n");

  options.ladder->given_up = "";
  options.ladder->lower = [](const std::string&) { return std::string(); };
  const auto [short_code, short_said] = launched(options);
  EXPECT_EQ(short_code, 2);
  EXPECT_NE(short_said.find("nothing is left to give up"), std::string::npos) << short_said;

  options.ladder.reset();
  EXPECT_EQ(launched(options).first, 2);
  EXPECT_EQ(text("starts"), "0 all '' 0\n");
}

// Run by the test below: a rank that another process traces without ever looking. To its launcher,
// which is told of its death after the tracer, it is one that cannot be killed.
TEST(LaunchedRank, DISABLED_CannotBeEnded) {
  const pid_t rank = getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  if (fork() == 0) {
    setsid();  // not of the rank's group, which is killed
    if (ptrace(PTRACE_SEIZE, rank, nullptr, nullptr) != 0) _exit(1);
    std::ofstream(fs::path(std::getenv("FOLDER")) / "tracer") << getpid() << "\n";
  }
  while (true) pause();
}

TEST_F(LauncherTest, ARankThatCannotBeEndedIsNamedAndLeftBehind) {
  const auto self = fs::read_symlink("/proc/self/exe").string();
  options.longest_end = milliseconds(1500);
  options.command = "skein train again.yaml";
  const auto script = fmt::format(
      "[ $RANK = 1 ] || exec {} --gtest_also_run_disabled_tests --gtest_brief=1 "
      "--gtest_filter=LaunchedRank.DISABLED_CannotBeEnded; "
      "until [ -s $FOLDER/tracer ]; do sleep 0.01; done; exit 4",
      self);
  const auto [code, said] = run_and_listen(plan(2), script);
  kill(std::stoi(text("tracer")), SIGKILL);
  EXPECT_EQ(code, 4);
  EXPECT_TRUE(std::regex_search(said, std::regex("rank 1 of 2.* exit code 4"))) << said;
  EXPECT_TRUE(std::regex_search(said, std::regex("remains +rank 0 on \\S+ \\(pid [0-9]+, state Z")))
      << said;
  int status = 0;
  while (waitpid(-1, &status, 0) > 0) continue;  // it comes back to us with its tracer's end
}

TEST(RootCause, IsTheEarliestThatIsNoSymptomWithinTheWindow) {
  const auto at = [](int ms) { return Time(milliseconds(ms)); };
  const std::vector<Failure> failures = {{.rank = 0, .end = {.code = 3}, .time = at(0)},
                                         {.rank = 1, .end = {.code = 3}, .time = at(10)},
                                         {.rank = 2, .end = {.signal = SIGSEGV}, .time = at(900)},
                                         {.rank = 3, .end = {.code = 2}, .time = at(950)}};
  EXPECT_EQ(root_cause(failures, milliseconds(1000)).rank, 2);
  EXPECT_EQ(root_cause(failures, milliseconds(500)).rank, 0);
  EXPECT_EQ(root_cause(std::span(failures).subspan(3), milliseconds(500)).rank, 3);
}

TEST(StopRequest, SignalsAskOnceAndTheSecondInterruptExits) {
  const auto ask = [](std::vector<int> signals) {
    std::signal(SIGINT, SIG_DFL);  // tests may run behind a `&`, and what is ignored stays so
    install_stop_handlers();
    for (const int signal : signals) raise(signal);
    _exit(stop_requested() ? 7 : 8);
  };
  EXPECT_EXIT(ask({}), testing::ExitedWithCode(8), "");
  EXPECT_EXIT(ask({SIGTERM, SIGTERM, SIGUSR1, SIGINT}), testing::ExitedWithCode(7), "");
  EXPECT_EXIT(ask({SIGINT, SIGINT}), testing::ExitedWithCode(130), "");
}

TEST(RankEnvironment, RefusesAProcessThatNobodyStarted) {
  EXPECT_EXIT(
      {
        unsetenv("WORLD_SIZE");
        try {
          from_environment();
        } catch (const UserError&) {
          _exit(2);
        }
      },
      testing::ExitedWithCode(2), "");
}

}  // namespace
}  // namespace skein::launch
