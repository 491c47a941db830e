// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/reporters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "skein/core/error.h"

namespace skein::report {
namespace {

// SKEIN_TEST_OUT names a folder that stays: tests/parity/logs_test.py reads it with the real
// programs.
class ReportersTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* kept = std::getenv("SKEIN_TEST_OUT");
    keep_ = kept != nullptr;
    output_ = keep_ ? fs::path(kept)
                    : fs::path(testing::TempDir()) / fmt::format("skein_reporters_{}", getpid());
    make_directories(output_);
  }
  void TearDown() override {
    if (!keep_) fs::remove_all(output_);
  }
  ReporterOptions options(std::vector<std::string> report_to) const {
    return {.output = output_,
            .report_to = std::move(report_to),
            .run_name = "parity run",
            .config_text = "learning_rate: 0.001\nname: 训练",
            .hparams = {{"learning_rate", 1e-3},
                        {"bf16", true},
                        {"lr_scheduler_type", std::string("cosine \"quoted\" 中文")}}};
  }
  std::vector<fs::path> files_of(const fs::path& folder) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }

  bool keep_ = false;
  fs::path output_;
};

// Two starts: the second continues after step 4, so steps 5 and 6 are reported twice.
TEST_F(ReportersTest, TwoStarts) {
  std::string log;
  {
    Reporters first(options({"all"}));
    for (int step = 1; step <= 6; ++step) {
      first.record(step, {{"loss", 100.0 + step}});
      log += fmt::format("{{\"step\": {}, \"loss\": {}}}\n", step, 100.0 + step);
    }
  }
  write_file_atomically(output_ / "trainer_log.jsonl", log);
  auto second_options = options({"all"});
  second_options.resume_step = 4;
  Reporters second(second_options);
  for (int step = 5; step <= 400; ++step) {
    second.record(step, {{"loss", 8.0 / step},
                         {"learning_rate", 1e-3 * step},
                         {"grad_norm", step == 7 ? NAN : 0.5}});
    log += fmt::format("{{\"step\": {}, \"loss\": {}}}\n", step, 8.0 / step);
  }
  second.record(400, {{"eval_loss", 0.25}});
  second.text(400, "samples", "**once** upon 从前");
  write_file_atomically(output_ / "trainer_log.jsonl", log);
  second.finish();

  EXPECT_EQ(files_of(output_ / "runs").size(), 2U);
  EXPECT_EQ(files_of(output_ / "wandb").size(), 3U);  // two runs and the id they share
  EXPECT_TRUE(fs::exists(output_ / "training_loss.svg"));
}

TEST_F(ReportersTest, NoneWritesNothing) {
  if (keep_) GTEST_SKIP() << "writes for another program";
  Reporters reporters(options({"none"}));
  reporters.record(1, {{"loss", 1}});
  reporters.finish();
  EXPECT_TRUE(files_of(output_).empty());
}

TEST_F(ReportersTest, EveryRecordIsInTheFileAtOnce) {
  if (keep_) GTEST_SKIP() << "writes for another program";
  Reporters reporters(options({"tensorboard"}));
  const auto file = files_of(output_ / "runs").at(0);
  const auto before = fs::file_size(file);
  reporters.record(1, {{"loss", 1}});
  EXPECT_GT(fs::file_size(file), before);
}

TEST_F(ReportersTest, AFolderThatCannotBeMadeDoesNotStopTheRun) {
  if (keep_) GTEST_SKIP() << "writes for another program";
  write_file_atomically(output_ / "runs", "in the way");
  Reporters reporters(options({"tensorboard"}));
  reporters.record(1, {{"loss", 1}});
  reporters.finish();
}

// A kill may come between: what nobody was told of would stay for good.
TEST_F(ReportersTest, WhatIsMadeIsToldBefore) {
  if (keep_) GTEST_SKIP() << "writes for another program";
  std::vector<fs::path> told;
  auto watched = options({"all"});
  watched.announce = [&](const std::vector<fs::path>& paths) {
    for (const auto& path : paths) EXPECT_FALSE(fs::exists(fs::symlink_status(path))) << path;
    told.insert(told.end(), paths.begin(), paths.end());
  };
  Reporters reporters(watched);
  reporters.record(1, {{"loss", 1}});
  for (const auto& file : files_of(output_)) {
    const auto is_below = [&](const fs::path& path) {
      return file.string().starts_with(path.string());
    };
    EXPECT_TRUE(std::any_of(told.begin(), told.end(), is_below)) << file;
  }
  EXPECT_EQ(told.size(), 4U);
}

TEST_F(ReportersTest, UnknownNameIsRefused) {
  EXPECT_THROW(Reporters(options({"tensorbord"})), UserError);
}

TEST_F(ReportersTest, WandbIdThatIsNoFileNameIsRefused) {
  if (keep_) GTEST_SKIP() << "writes for another program";
  setenv("WANDB_RUN_ID", "../up", 1);
  EXPECT_THROW(Reporters(options({"wandb"})), UserError);
  unsetenv("WANDB_RUN_ID");
}

TEST_F(ReportersTest, ADamagedMemoryOfTheIdMakesANewRun) {
  if (keep_) GTEST_SKIP() << "writes for another program";
  const auto memory = output_ / "wandb" / "wandb-resume.json";
  const auto id_after = [&](const std::string& text) {
    make_directories(memory.parent_path());
    write_file_atomically(memory, text);
    auto continued = options({"wandb"});
    continued.resume_step = 4;
    Reporters reporters(continued);
    return nlohmann::json::parse(read_file(memory)).at("run_id").get<std::string>();
  };
  EXPECT_EQ(id_after(R"({"run_id": "abcd1234"})"), "abcd1234");
  for (const auto* text : {"", "{\"run_id\": \"abcd1234\"", "7", "[]", "{}", R"({"run_id": 7})",
                           R"({"run_id": "../up"})", R"({"run_id": "a", "run_id": "abcd1234"})"}) {
    const auto id = id_after(text);
    EXPECT_EQ(id.size(), 8U) << text;
    EXPECT_NE(id, "abcd1234") << text;
  }
}

TEST_F(ReportersTest, ADamagedLogIsReplayedAsFarAsItCanBeRead) {
  if (keep_) GTEST_SKIP() << "writes for another program";
  write_file_atomically(output_ / "trainer_log.jsonl",
                        "{\"step\": 1, \"loss\": 2}\n{\"step\": 1e300, \"loss\": 2}\n"
                        "{\"step\": 2, \"whole\": 2}\n{\"step\": 3, \"cut\": ");
  auto continued = options({"wandb"});
  continued.resume_step = 4;
  Reporters reporters(continued);
  std::string sent;
  for (const auto& file : files_of(output_ / "wandb")) {
    if (file.extension() == ".wandb") sent = read_file(file);
  }
  EXPECT_NE(sent.find("train/whole"), std::string::npos);
  EXPECT_EQ(sent.find("train/cut"), std::string::npos);
}

TEST(ReporterName, HuggingFaceRule) {
  EXPECT_EQ(reporter_name("loss"), "train/loss");
  EXPECT_EQ(reporter_name("eval_loss"), "eval/loss");
  EXPECT_EQ(reporter_name("test_accuracy"), "test/accuracy");
}

}  // namespace
}  // namespace skein::report
