// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/failure_report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "skein/core/file.h"
#include "skein/core/testing.h"

namespace skein::launch {
namespace {

struct FailureReportTest : testing::Test {
  fs::path folder;
  void SetUp() override { folder = make_temporary_folder("report"); }
  void TearDown() override { fs::remove_all(folder); }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << content;
  }
};

FailureReport example_report() {
  FailureReport report;
  report.rank = 1;
  report.size = 4;
  report.host = "host-a";
  report.pid = 123;
  report.end = {.signal = SIGKILL};
  report.board.pid = 123;
  report.board.step = 11;
  report.board.phase = board::Phase::kBackward;
  return report;
}

TEST(FailureText, SaysItAllInTheFirstLine) {
  auto report = example_report();
  report.oom_counted = true;
  report.last_calls = "#57 all_gather of 4096 float32 (sharded.cpp:120)\nranks 0, 2, 3 waited";
  report.saved = "out/checkpoint-10";
  report.logs = "out/logs/rank-1.log";
  report.command = "skein train c.yaml --nproc-per-node 4";
  EXPECT_EQ(to_text(report),
            "rank 1 of 4 on host-a (pid 123) was killed by SIGKILL (out of memory: the cgroup "
            "counted an OOM kill), step 12, backward\n"
            "  last call     #57 all_gather of 4096 float32 (sharded.cpp:120)\n"
            "                ranks 0, 2, 3 waited\n"
            "  saved         out/checkpoint-10\n"
            "  logs          out/logs/rank-1.log\n"
            "  to continue   skein train c.yaml --nproc-per-node 4");
}

TEST(FailureText, NamesTheCause) {
  auto report = example_report();
  EXPECT_EQ(to_text(report),
            "rank 1 of 4 on host-a (pid 123) was killed by SIGKILL (probably out of memory, or "
            "killed by hand), step 12, backward");
  report.end = {.signal = SIGSEGV};
  EXPECT_EQ(to_text(report),
            "rank 1 of 4 on host-a (pid 123) was killed by SIGSEGV, step 12, "
            "backward");
  report.end = {.code = 4};
  report.message = "cannot write x: No space left on device\nfree some";
  report.board.phase = board::Phase::kSave;
  report.decision = "restarting (1 of 3)";
  EXPECT_EQ(to_text(report),
            "rank 1 of 4 on host-a (pid 123) failed with exit code 4, after step 11, save: cannot "
            "write x: No space left on device\n  free some\n"
            "  then          restarting (1 of 3)");
}

TEST(FailureText, AVerdictReplacesTheCause) {
  auto report = example_report();
  report.verdict = Verdict{.trouble = Trouble::kStopped, .rank = 1, .text = "rank 1 is stopped"};
  report.saved = "out/checkpoint-10";
  EXPECT_EQ(to_text(report), "rank 1 is stopped\n  saved         out/checkpoint-10");
}

TEST(FailureText, ARankThatNeverCameHasNoPlace) {
  auto report = example_report();
  report.end = {.code = 1};
  report.board = {};
  EXPECT_EQ(to_text(report), "rank 1 of 4 on host-a (pid 123) failed with exit code 1");
}

// Read as torch.distributed.elastic reads it: message.message and message.extraInfo.timestamp.
TEST_F(FailureReportTest, TheErrorFileIsTorchruns) {
  const auto of_report = nlohmann::json::parse(to_error_json(example_report()))["message"];
  EXPECT_TRUE(of_report["message"].get<std::string>().starts_with("rank 1 of 4"));
  EXPECT_EQ(of_report["extraInfo"]["rank"], 1);
  EXPECT_EQ(of_report["extraInfo"]["signal"], SIGKILL);
  const auto file = folder / "error.json";
  setenv("TORCHELASTIC_ERROR_FILE", file.c_str(), 1);
  write_error_file(example_report());
  EXPECT_EQ(nlohmann::json::parse(read_file(file))["message"]["extraInfo"]["rank"], 1);
  write_error_file("broken \xff text");
  const auto message = nlohmann::json::parse(read_file(file))["message"];
  EXPECT_TRUE(message["message"].get<std::string>().starts_with("broken "));
  EXPECT_GT(std::stoll(message["extraInfo"]["timestamp"].get<std::string>()), 1'700'000'000);
  setenv("TORCHELASTIC_ERROR_FILE", (folder / "missing" / "error.json").c_str(), 1);
  testing::internal::CaptureStderr();
  write_error_file("nobody sees this");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("missing"), std::string::npos);
  unsetenv("TORCHELASTIC_ERROR_FILE");
  write_error_file("nor this");
}

// /dev/null switches it off, and stays what it is.
TEST_F(FailureReportTest, WhatIsNoPlainFileIsWrittenToAndNotReplaced) {
  const auto report_to = [](const fs::path& path) {
    setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1);
    write_error_file(example_report());
    unsetenv("TORCHELASTIC_ERROR_FILE");
  };
  const auto link = folder / "link", pipe = folder / "pipe";
  write("target", "old, and longer than the report " + std::string(10'000, '.'));
  fs::create_symlink("target", link);
  report_to(link);
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read_file(folder / "target"), to_error_json(example_report()));

  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  testing::internal::CaptureStderr();
  report_to(pipe);  // nobody reads it: no reason to wait
  EXPECT_NE(testing::internal::GetCapturedStderr().find("cannot write"), std::string::npos);
  const File reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK));
  report_to(pipe);
  std::string text(100'000, '\0');
  text.resize(static_cast<size_t>(::read(reader.descriptor(), text.data(), text.size())));
  EXPECT_EQ(text, to_error_json(example_report()));
  EXPECT_TRUE(fs::is_fifo(pipe));

  fs::create_symlink("/dev/null", folder / "null");
  report_to(folder / "null");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_TRUE(fs::is_symlink(folder / "null"));
}

TEST_F(FailureReportTest, OomKillsComeFromTheNearestCgroup) {
  write("two", "0::/user/run\n");
  write("sys/user/memory.events", "low 0\noom 9\noom_kill 2\noom_group_kill 0\n");
  EXPECT_EQ(oom_kills(folder / "two", folder / "sys"), 2);
  write("sys/user/run/memory.events", "oom_kill 1\n");
  EXPECT_EQ(oom_kills(folder / "two", folder / "sys"), 1);
  write("one", "5:cpu,cpuacct:/a\n4:memory:/job/7\n0::/nothing\n");
  EXPECT_EQ(oom_kills(folder / "one", folder / "sys"), std::nullopt);
  write("sys/memory/job/7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(oom_kills(folder / "one", folder / "sys"), 3);
  EXPECT_EQ(oom_kills(folder / "none", folder / "sys"), std::nullopt);
}

TEST_F(FailureReportTest, APathIsNamedBriefly) {
  const auto path = folder / "checkpoint-10";
  EXPECT_EQ(shorter_path(path), path.string());
  const auto before = fs::current_path();
  fs::current_path(folder.parent_path());
  EXPECT_EQ(shorter_path(path), (folder.filename() / "checkpoint-10").string());
  fs::create_directory(folder / "gone");
  fs::current_path(folder / "gone");
  fs::remove(folder / "gone");
  EXPECT_EQ(shorter_path(path), path.string()) << "a working folder that was removed";
  fs::current_path(before);
}

TEST_F(FailureReportTest, TheSameStepIsCountedOverStarts) {
  EXPECT_EQ(FailureCount(folder).add(5, {1, 2}), 1);
  EXPECT_EQ(FailureCount(folder).add(5, {1, 2}), 2);
  FailureCount count(folder);
  EXPECT_EQ(count.add(5, {}), 3);
  EXPECT_EQ(count.add(6, {}), 1);
  count.clear();
  EXPECT_FALSE(fs::exists(folder / "failures.json"));
  EXPECT_EQ(FailureCount(folder).add(6, {}), 1);
}

TEST_F(FailureReportTest, ACountThatCannotBeReadOrWrittenIsNoReasonToStop) {
  testing::internal::CaptureStderr();
  for (const char* content : {"", "{\"step\": 5", "[1]", "{\"step\": \"x\", \"count\": 2}"}) {
    write("failures.json", content);
    EXPECT_EQ(FailureCount(folder).add(5, {}), 1) << content;
    FailureCount(folder).clear();
    EXPECT_EQ(read_file(folder / "failures.json"), content);  // somebody else's
  }
  FailureCount nowhere(folder / "missing");
  EXPECT_EQ(nowhere.add(5, {}), 1);
  EXPECT_EQ(nowhere.add(5, {}), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("not counted for later"),
            std::string::npos);
}

}  // namespace
}  // namespace skein::launch
