// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What counts as a checkpoint of this run, and what goes for a limit.

#include "skein/checkpoint/files/catalog.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "skein/checkpoint/files/testing.h"
#include "skein/checkpoint/files/writer.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/hash.h"
#include "skein/core/log_writer.h"
#include "skein/core/store.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

// Fails to open or read files of one name, so many times; time passes at once.
class BrokenReads final : public FileSystem {
 public:
  std::string name;
  int error = ESTALE;
  int opens = 0, reads = 0;  // that fail

  int open(const fs::path& path, int flags) override {
    if (path.filename() == name && opens > 0) {
      --opens;
      errno = error;
      return -1;
    }
    const int descriptor = FileSystem::open(path, flags);
    if (path.filename() == name) opened_ = descriptor;
    return descriptor;
  }
  ssize_t read(int descriptor, std::span<std::byte> out, uint64_t offset) override {
    if (descriptor == opened_ && reads > 0) {
      --reads;
      errno = error;
      return -1;
    }
    return FileSystem::read(descriptor, out, offset);
  }
  void pause(std::chrono::milliseconds) override {}

 private:
  int opened_ = -1;
};

class CatalogTest : public TemporaryFolder {
 protected:
  CatalogTest() {
    set_log_writer([this](std::string_view line) { log_ += line; });
  }
  ~CatalogTest() override { set_log_writer({}); }

  // A whole checkpoint; what the file holds is not looked at.
  fs::path make(int64_t step, const std::string& token) {
    const auto path = folder_ / checkpoint_name(step);
    const auto text = fmt::format("bytes of step {} by {}", step, token);
    make_directories(path);
    write_file_atomically(path / "model.bin", text);
    write_file_atomically(
        path / kManifestName,
        manifest_text({.step = static_cast<uint64_t>(step),
                       .run = token,
                       .saved_at = "",
                       .conditions = {},
                       .files = {{"model.bin", text.size(), {{0, text.size(), digest(text)}}}}}));
    return path;
  }

  void damage(int64_t step) {
    write_file_atomically(
        folder_ / checkpoint_name(step) / "model.bin",
        std::string(fs::file_size(folder_ / checkpoint_name(step) / "model.bin"), 'x'));
  }

  // Starts that began one after the other where the one before was.
  void record(const std::vector<std::string>& tokens) {
    RunRecord record;
    for (const auto& token : tokens) {
      record.starts.push_back({.token = token, .step = {}, .asked = "", .began_at = ""});
    }
    write_record(folder_, record);
  }

  std::vector<int64_t> steps() {
    std::vector<int64_t> found;
    for (const auto& listed : list_checkpoints(folder_)) found.push_back(listed.step);
    return found;
  }

  void rotate(int64_t written, int64_t limit, const std::vector<int64_t>& protected_steps = {}) {
    remove_old_checkpoints(folder_, {.limit = limit,
                                     .written_step = written,
                                     .token = "b",
                                     .protected_steps = protected_steps,
                                     .on_read = [this](uint64_t bytes) { bytes_read_ += bytes; }});
  }

  uint64_t bytes_read_ = 0;

  std::string log_;
};

using Steps = std::vector<int64_t>;

TEST_F(CatalogTest, OnlyThisRunsCheckpointsAreCountedOrRemoved) {
  record({"a", "b"});
  for (const int step : {10, 20}) make(step, "a");
  make(15, "stranger");
  for (const int step : {30, 40}) make(step, "b");
  fs::create_directories(folder_ / "checkpoint-5");  // another program's, without a manifest
  write("checkpoint-5/optimizer.pt", "x");
  write("checkpoint-500/manifest.json", "{}");
  rotate(40, 2);
  EXPECT_EQ(steps(), (Steps{500, 40, 30, 15, 5}));
  EXPECT_GT(bytes_read_, 0U);  // what takes long says that it goes on
  rotate(40, 1);
  EXPECT_EQ(steps(), (Steps{500, 40, 15, 5}));
}

TEST_F(CatalogTest, WhatTheRunHasLeftIsNotCounted) {
  RunRecord record;
  record.starts = {{.token = "a", .step = 0, .asked = "", .began_at = ""},
                   {.token = "b", .step = 36, .asked = "", .began_at = ""}};
  write_record(folder_, record);
  for (const int step : {32, 36, 40}) make(step, "a");
  make(38, "b");
  rotate(38, 2);
  EXPECT_EQ(steps(), (Steps{40, 38, 36}));
}

TEST_F(CatalogTest, AnUnreadableRecordRemovesNothing) {
  write(std::string(kRecordName), "damaged");
  for (const int step : {10, 20, 30}) make(step, "b");
  EXPECT_THROW(rotate(30, 1), IoError);
  EXPECT_EQ(steps(), (Steps{30, 20, 10}));
}

// Bits flip after each commit: the last good one is never given for one that cannot be loaded.
TEST_F(CatalogTest, NoGoodCheckpointGoesForADamagedOne) {
  record({"b"});
  make(10, "b");
  for (const int step : {20, 30, 40}) {
    make(step, "b");
    rotate(step, 2);
    damage(step);
  }
  EXPECT_EQ(steps(), (Steps{40, 30, 20, 10}));
  EXPECT_PRED2(contains, log_, "does not count for save_total_limit");
  for (const int step : {50, 60, 70}) {  // the disk is well again
    make(step, "b");
    rotate(step, 2);
  }
  EXPECT_EQ(find_latest(folder_)->manifest.step, 70U);
}

TEST_F(CatalogTest, NothingGoesForACheckpointThatDoesNotReadBack) {
  record({"b"});
  for (const int step : {10, 20}) make(step, "b");
  damage(20);
  rotate(20, 1);
  EXPECT_EQ(steps(), (Steps{20, 10}));
  make(30, "b");
  BrokenReads broken;
  broken.name = "model.bin";
  broken.error = EIO;
  broken.reads = 1000;
  {
    const ScopedFileSystem scope(broken);
    rotate(30, 1);
  }
  EXPECT_EQ(steps(), (Steps{30, 20, 10}));
}

TEST_F(CatalogTest, TheProtectedOneIsAmongThoseThatStay) {
  record({"b"});
  for (const int step : {10, 20, 30, 40}) make(step, "b");
  rotate(40, 2, {10});
  EXPECT_EQ(steps(), (Steps{40, 10}));
  make(50, "b");
  rotate(50, 1, {10, 40});
  EXPECT_EQ(steps(), (Steps{50, 40, 10}));
}

// A folder that takes no other name, and the reason; a mount does not go either.
class StuckFolder final : public FileSystem {
 public:
  StuckFolder(std::string name, int reason) : name_(std::move(name)), reason_(reason) {}
  int rename(const fs::path& from, const fs::path& to, unsigned flags) override {
    if (from.filename() != name_) return FileSystem::rename(from, to, flags);
    errno = reason_;
    return -1;
  }
  int remove(const fs::path& path) override {
    removed.push_back(path.filename().string());
    if (path.filename() != name_ || reason_ != EBUSY) return FileSystem::remove(path);
    errno = reason_;
    return -1;
  }
  std::vector<std::string> removed;

 private:
  std::string name_;
  int reason_;
};

TEST_F(CatalogTest, OneThatTakesNoOtherNameGoesWhereItLies) {
  for (const int reason : {EXDEV, EBUSY}) {
    record({"b"});
    for (const int step : {10, 20}) make(step, "b");
    StuckFolder disk("checkpoint-10", reason);
    const ScopedFileSystem use(disk);
    rotate(20, 1);
    EXPECT_EQ(steps(), reason == EXDEV ? Steps{20} : (Steps{20, 10}));
    EXPECT_FALSE(fs::exists(folder_ / "checkpoint-10" / kManifestName));
    ASSERT_FALSE(disk.removed.empty());
    EXPECT_EQ(disk.removed.front(), kManifestName) << "half of a folder looks like a whole one";
  }
  EXPECT_PRED2(contains, log_, "checkpoint-10 stays, empty");
}

TEST_F(CatalogTest, OneThatCannotBeRemovedKeepsNoOtherFromGoing) {
  record({"b"});
  for (const int step : {10, 20, 30}) make(step, "b");
  StuckFolder disk("checkpoint-10", EPERM);
  const ScopedFileSystem use(disk);
  rotate(30, 1);
  EXPECT_EQ(steps(), (Steps{30, 10}));
  EXPECT_PRED2(contains, log_, "checkpoint-10 stays: cannot rename");
  make(40, "b");
  EXPECT_TRUE(give_up_oldest(folder_, {.token = "b"}));
  EXPECT_EQ(steps(), (Steps{40, 10}));
  EXPECT_FALSE(give_up_oldest(folder_, {.token = "b"}));
}

TEST_F(CatalogTest, SurveySaysWhoseEachIs) {
  RunRecord record;
  record.starts = {{.token = "a", .step = 0, .asked = "", .began_at = ""},
                   {.token = "b", .step = 20, .asked = "", .began_at = ""}};
  record.removing_starts = {"old"};
  make(10, "a");
  make(30, "a");
  make(40, "b");
  make(50, "stranger");
  make(60, "old");
  write("checkpoint-70/manifest.json", "not one");
  fs::create_directories(folder_ / "checkpoint-80");
  std::vector<Relation> relations;
  for (const auto& seen : survey(folder_, record)) relations.push_back(seen.relation);
  using enum Relation;
  EXPECT_EQ(relations, (std::vector{kUnknown, kUnknown, kLeft, kStranger, kOwn, kLeft, kOwn}));
  relations.clear();
  for (const auto& seen : survey(folder_, std::nullopt)) relations.push_back(seen.relation);
  EXPECT_EQ(relations, (std::vector{kUnknown, kUnknown, kOwn, kOwn, kOwn, kOwn, kOwn}));
}

// A disk that does not answer is no damage.
TEST_F(CatalogTest, WhatCannotBeReadIsTriedAgainAndThenSaidToBeUnreadable) {
  const auto path = make(10, "a");
  BrokenReads broken;
  const ScopedFileSystem scope(broken);
  for (const char* name : {"manifest.json", "model.bin"}) {
    for (const int error : {ESTALE, EIO, ETIMEDOUT}) {
      broken.name = name;
      broken.error = error;
      broken.opens = 4;
      EXPECT_TRUE(verify(path).empty()) << name;
      broken.opens = 0;
      broken.reads = 4;
      EXPECT_TRUE(verify(path).empty()) << name;
      broken.reads = 1000;
      const auto problems = verify(path);
      ASSERT_EQ(problems.size(), 1U);
      EXPECT_TRUE(problems[0].unreadable);
      EXPECT_THROW(find_latest(folder_), IoError);
      broken.reads = 0;
    }
  }
  broken.error = EACCES;
  broken.opens = 1;
  EXPECT_TRUE(verify(path).at(0).unreadable);
  EXPECT_EQ(broken.opens, 0);
  fs::remove(path / "model.bin");
  EXPECT_FALSE(verify(path).at(0).unreadable);  // that is certain
}

// The commit of a step whose folder another program has made.
TEST_F(CatalogTest, AStrangersFolderIsSetAsideNotReplaced) {
  write("checkpoint-7/optimizer.pt", "theirs");
  MemoryStore store;
  std::atomic<bool> stop = false;
  for (int i = 0; i < 2; ++i) {
    Exchange exchange(store, {.prefix = fmt::format("c/{}", i), .rank = 0, .size = 1}, stop);
    EXPECT_EQ(write_checkpoint({}, {.output = folder_, .step = 7, .token = "t", .conditions = {}},
                               exchange),
              "");
  }
  EXPECT_EQ(read_file(folder_ / "checkpoint-7.aside-t/optimizer.pt"), "theirs");
  EXPECT_TRUE(verify(folder_ / "checkpoint-7").empty());
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-7.aside-t-2"));
  EXPECT_PRED2(contains, log_, "checkpoint-7 is not a checkpoint of this run");
  sweep_temporaries(folder_);
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint-7.aside-t"));
}

TEST_F(CatalogTest, ALinkThatLeadsNowhereIsSetAside) {
  fs::create_symlink("/nowhere/checkpoint-7", folder_ / "checkpoint-7");
  MemoryStore store;
  std::atomic<bool> stop = false;
  Exchange exchange(store, {.prefix = "c", .rank = 0, .size = 1}, stop);
  EXPECT_EQ(write_checkpoint({}, {.output = folder_, .step = 7, .token = "t", .conditions = {}},
                             exchange),
            "");
  EXPECT_TRUE(fs::is_symlink(folder_ / "checkpoint-7.aside-t"));
  EXPECT_TRUE(verify(folder_ / "checkpoint-7").empty());
}

// `latest` and the limit do not hang on each other.
TEST_F(CatalogTest, ALimitHoldsWhereLatestCannotBeReplaced) {
  write("latest/mine", "x");  // a folder cannot be replaced by a link
  MemoryStore store;
  std::atomic<bool> stop = false;
  for (const int step : {1, 2, 3}) {
    Exchange exchange(store, {.prefix = fmt::format("c/{}", step), .rank = 0, .size = 1}, stop);
    EXPECT_EQ(write_checkpoint({},
                               {.output = folder_,
                                .step = step,
                                .token = "t",
                                .save_total_limit = 1,
                                .conditions = {}},
                               exchange),
              "");
  }
  EXPECT_EQ(steps(), (Steps{3}));
  EXPECT_PRED2(contains, log_, "checkpoint-3 is saved, but: cannot rename");
  EXPECT_TRUE(fs::exists(folder_ / "latest/mine"));
}

TEST_F(CatalogTest, SweepRemovesOnlyWhatIsTemporary) {
  make(1, "t");
  make_directories(folder_ / "wandb");
  make_directories(folder_ / "additional_chat_templates");
  for (const char* name : {"checkpoint-2.tmp-0badcafe", "checkpoint-2.tmp-0badcafe-00000001",
                           "checkpoint-3.tmp-removed", "checkpoint-4.tmp-replaced"}) {
    make_directories(folder_ / name / "x");
  }
  fs::create_symlink("checkpoint-1", folder_ / "latest.tmp-0123456789abcdef");
  for (const char* name :
       {"model.safetensors.tmp-0badcafe", "model.safetensors.index.json.tmp-0badcafe",
        "merges.txt.tmp-0123456789abcdef", ".skein-node-token.tmp-0123456789abcdef",
        "wandb/latest-run.tmp-00000000deadbeef",
        "additional_chat_templates/rag.jinja.tmp-00000000deadbeef"}) {
    write_file_atomically(folder_ / name, "x");
  }
  std::vector<std::string> kept = {"additional_chat_templates", "checkpoint-1", "wandb"};
  for (const char* name :
       {"checkpoint-1.tmp-backup", "checkpoint-1.tmp-old run.bak", "checkpoint-2.tmp-0badcaf",
        "checkpoint-2.tmp-0badcafe-", "config.yaml.tmp-0123456789abcdex", "config.yaml.tmp-2024",
        "mine.tmp-0badcafe", "model.safetensors", "model.safetensors.tmp-mybackup",
        "model.safetensors.tmp-old.txt", "notes.json.tmp-0123456789abcdef"}) {
    write_file_atomically(folder_ / name, "x");
    kept.emplace_back(name);
  }
  std::ranges::sort(kept);
  sweep_temporaries(folder_);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.push_back(entry.path().filename());
  std::ranges::sort(left);
  EXPECT_EQ(left, kept);
  EXPECT_TRUE(fs::is_empty(folder_ / "wandb"));
  EXPECT_TRUE(fs::is_empty(folder_ / "additional_chat_templates"));
  EXPECT_TRUE(verify(folder_ / "checkpoint-1").empty());
}

}  // namespace
}  // namespace skein::checkpoint
