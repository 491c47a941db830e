// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/run_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

class RunRecordTest : public TemporaryFolder {};

TEST_F(RunRecordTest, WhatIsWrittenIsRead) {
  EXPECT_FALSE(read_record(folder_).has_value());
  RunRecord record;
  record.starts = {{.token = "a", .step = {}, .asked = "", .began_at = ""},
                   {.token = "b", .step = 36, .asked = "/x/checkpoint-36", .began_at = "now"}};
  record.add_file("config.yaml");
  record.add_file("runs/events.out.1");
  record.add_file("config.yaml");
  record.removing_starts = {"old"};
  record.removing_files = {"latest"};
  EXPECT_FALSE(parse_record(record_text(record), "record").given_up);
  record.given_up = {.words = "per_device_train_batch_size=4", .ranks = 2, .rows = 16};
  write_record(folder_, record);
  const auto read = read_record(folder_).value();
  EXPECT_EQ(record_text(read), record_text(record));
  EXPECT_EQ(read.files, (std::vector<std::string>{"config.yaml", "runs/events.out.1"}));
  EXPECT_EQ(read.starts[0].step, std::nullopt);
  EXPECT_EQ(read.starts[1].step, 36);
  EXPECT_EQ(read.given_up->words, "per_device_train_batch_size=4");
  EXPECT_EQ(read.given_up->ranks, 2);
  EXPECT_EQ(read.given_up->rows, 16);
  // What a stranger puts there reaches no configuration.
  for (const char* words :
       {"fresh=true", "output_dir=/elsewhere", "gradient_checkpointing=true seed=1"}) {
    record.given_up->words = words;
    EXPECT_THROW(parse_record(record_text(record), "record"), IoError) << words;
  }
  record.given_up = {.words = "offload_ratio=0.5", .ranks = -1, .rows = 16};
  EXPECT_THROW(parse_record(record_text(record), "record"), IoError);
  EXPECT_TRUE(read.has_start("a") && !read.has_start("old") && read.is_being_removed("old"));
}

// A start leaves what earlier ones have saved beyond the step that it begins with.
TEST_F(RunRecordTest, AStartLeavesWhatLiesBeyondItsBeginning) {
  RunRecord record;
  record.starts = {{.token = "a", .step = 0, .asked = "", .began_at = ""},
                   {.token = "b", .step = 36, .asked = "", .began_at = ""},
                   {.token = "c", .step = 40, .asked = "", .began_at = ""}};
  EXPECT_FALSE(record.has_left("a", 36));
  EXPECT_TRUE(record.has_left("a", 37));
  EXPECT_TRUE(record.has_left("a", 40));
  EXPECT_FALSE(record.has_left("b", 40));
  EXPECT_TRUE(record.has_left("b", 44));
  EXPECT_FALSE(record.has_left("c", 44));
  EXPECT_FALSE(record.has_left("stranger", 99));
}

// save_on_each_node: the second half of a token is that of a node's folder.
TEST_F(RunRecordTest, WhatAnotherNodeOfTheRunHasSavedIsTheRuns) {
  RunRecord record;
  record.starts = {{.token = "0000000a-11111111", .step = 0, .asked = "", .began_at = ""},
                   {.token = "0000000b-11111111", .step = 36, .asked = "", .began_at = ""}};
  record.removing_starts = {"0000000c-11111111"};
  EXPECT_TRUE(record.has_start("0000000a-22222222"));
  EXPECT_FALSE(record.has_start("0000000d-11111111"));
  EXPECT_TRUE(record.has_left("0000000a-22222222", 40));
  EXPECT_FALSE(record.has_left("0000000b-22222222", 40));
  EXPECT_TRUE(record.is_being_removed("0000000c-22222222"));
}

TEST_F(RunRecordTest, AFolderIsTheSameInEverySpelling) {
  fs::create_directories(folder_ / "runs/checkpoint-8");
  fs::create_symlink("runs", folder_ / "here");
  fs::create_symlink("checkpoint-8", folder_ / "runs/latest");
  const auto name = asked_name(folder_ / "runs/checkpoint-8");
  for (const char* other :
       {"runs/checkpoint-8/", "runs/checkpoint-8/.", "runs/../runs//checkpoint-8",
        "here/checkpoint-8", "here/checkpoint-8/"}) {
    EXPECT_EQ(asked_name(folder_ / other), name) << other;
  }
  EXPECT_NE(asked_name(folder_ / "runs/latest"), name);
  EXPECT_EQ(asked_name(folder_ / "here/latest"), asked_name(folder_ / "runs/latest"));
  EXPECT_EQ(asked_name(name), name);
  fs::remove_all(folder_ / "runs/checkpoint-8");
  EXPECT_EQ(asked_name(folder_ / "here/checkpoint-8/"), name);
}

// What came of a beginning is no longer followed once a start has gone further back.
TEST_F(RunRecordTest, ABeginningThatWasLeftIsNone) {
  RunRecord record;
  const auto add = [&](const char* asked, int64_t step) {
    record.starts.push_back({.token = "t", .step = step, .asked = asked, .began_at = ""});
  };
  add("", 0);
  add("/r/checkpoint-8", 8);
  add("", 12);
  add("/r/checkpoint-8", 16);
  EXPECT_EQ(record.began_with("/r/checkpoint-8"), 8);
  add("/r/checkpoint-4", 4);
  EXPECT_EQ(record.began_with("/r/checkpoint-8"), std::nullopt);
  EXPECT_EQ(record.began_with("/r/checkpoint-4"), 4);
  add("/r/checkpoint-8", 8);
  EXPECT_EQ(record.began_with("/r/checkpoint-8"), 8);
  // Checkpoints of other folders are step 0 here.
  add("/one", 0);
  add("/one", 4);
  EXPECT_EQ(record.began_with("/one"), 0);
  EXPECT_EQ(record.began_with("/r/checkpoint-8"), std::nullopt);
  add("/other", 0);
  EXPECT_EQ(record.began_with("/one"), std::nullopt);
  EXPECT_EQ(record.began_with("/other"), 0);
}

TEST_F(RunRecordTest, AFolderThatIsNoTextIsFoundAgain) {
  RunRecord record;
  const auto asked = asked_name("/x/\xff\x80%/checkpoint-8");
  record.starts = {{.token = "a", .step = 8, .asked = asked, .began_at = ""}};
  write_record(folder_, record);
  EXPECT_EQ(read_record(folder_)->began_with(asked), 8);
  EXPECT_EQ(read_record(folder_)->began_with(asked_name("/x/\xfe\x80%/checkpoint-8")),
            std::nullopt);
}

TEST_F(RunRecordTest, NamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"../x", "/etc/passwd", "runs/../../x", "", "runs//x", "runs/", ".."}) {
    RunRecord record;
    record.files = {name};
    const auto text = record_text(record);
    EXPECT_THROW(parse_record(text, "f"), IoError) << name;
  }
}

TEST_F(RunRecordTest, WhatIsDamagedIsRefusedWithAWayOut) {
  const auto good = record_text({});
  for (const auto& text : {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
                           good.substr(0, good.size() / 2)}) {
    const auto message = refusal<IoError>([&] { parse_record(text, "out/.skein-run"); });
    EXPECT_PRED2(contains, message, "out/.skein-run");
    EXPECT_PRED2(contains, message, "remove it");
  }
  for (const char* step : {"-1", "1.5", "\"3\"", "18446744073709551615"}) {
    const auto text = fmt::format(
        R"({{"format":"skein run","version":1,"starts":[{{"token":"a","step":{},"asked":"",)"
        R"("began_at":""}}],"files":[],"removing":{{"starts":[],"files":[]}}}})",
        step);
    EXPECT_PRED2(contains, refusal<IoError>([&] { parse_record(text, "f"); }), "is no step");
  }
}

class Stale final : public FileSystem {
 public:
  int times = 0;  // that the record cannot be opened
  int open(const fs::path& path, int flags) override {
    if (path.filename() != kRecordName || times-- <= 0) return FileSystem::open(path, flags);
    errno = ESTALE;
    return -1;
  }
  void pause(std::chrono::milliseconds) override {}
};

// A record that cannot be read is not a folder without one.
TEST_F(RunRecordTest, AStaleHandleIsTriedAgainAndThenAnError) {
  write_record(folder_, {});
  Stale stale;
  const ScopedFileSystem scope(stale);
  stale.times = 3;
  EXPECT_TRUE(read_record(folder_).has_value());
  stale.times = 100;
  EXPECT_THROW(read_record(folder_), IoError);
}

}  // namespace
}  // namespace skein::checkpoint
