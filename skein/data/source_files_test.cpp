// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/source_files.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::data {
namespace {

class SourceFiles : public TemporaryFolder {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Names below the folder, one per line.
  std::string found(Split split = Split::kTrain) const {
    std::string names;
    for (const auto& file : find_sources(data_, split).files) {
      names += file.lexically_relative(folder_).string() + "\n";
    }
    return names;
  }
  std::string refused(Split split = Split::kTrain) const {
    return refusal<UserError>([&] { find_sources(data_, split); });
  }

  config::DataConfig data_;
};

TEST_F(SourceFiles, NothingIsAskedForByDefault) {
  EXPECT_EQ(found(), "");
  EXPECT_EQ(found(Split::kEval), "");
}

TEST_F(SourceFiles, FoldersAreReadInOrderAndToTheBottom) {
  for (const auto* name : {"d/b/z.txt", "d/b.txt", "d/a/x.jsonl", "d/a.txt", "d/notes.md",
                           "d/.hidden.txt", "d/.git/y.txt"}) {
    write(name, "x");
  }
  data_.train_file_dir = path("d");
  EXPECT_EQ(found(), "d/a.txt\nd/a/x.jsonl\nd/b.txt\nd/b/z.txt\n");
}

// A run's own log would change the data of its next start.
TEST_F(SourceFiles, FoldersOfRunsAreLeftOut) {
  for (const auto* name : {"d/a.txt", "d/out/.skein-run", "d/out/trainer_log.jsonl",
                           "d/out/checkpoint-1/merges.txt"}) {
    write(name, "x");
  }
  fs::create_symlink("out", folder_ / "d/same");
  data_.train_file_dir = path("d");
  EXPECT_EQ(found(), "d/a.txt\n");
  const auto notes = find_sources(data_, Split::kTrain).notes;
  ASSERT_EQ(notes.size(), 2);
  EXPECT_PRED2(contains, notes[0] + notes[1], "d/out is the folder of a run: left out");
}

TEST_F(SourceFiles, AListOfDataSetsIsNoData) {
  for (const auto* name : {"d/a.json", "d/dataset_info.json", "d/s/b.jsonl"}) write(name, "x");
  data_.train_file_dir = path("d");
  const auto sources = find_row_sources(data_, Split::kTrain);
  ASSERT_EQ(sources.files.size(), 2U);
  EXPECT_EQ(sources.files[0], path("d/a.json"));
  EXPECT_EQ(sources.files[1], path("d/s/b.jsonl"));
  ASSERT_EQ(sources.notes.size(), 1U);
  EXPECT_PRED2(contains, sources.notes[0],
               "d/dataset_info.json describes data sets and holds no row: left out");
}

TEST_F(SourceFiles, FilesOfOtherKindsAreNoted) {
  for (const auto* name : {"d/a.txt", "d/b.csv", "d/s/c.json", "d/A.TXT", "d/z.gz"})
    write(name, "x");
  data_.train_file_dir = path("d");
  EXPECT_EQ(found(), "d/a.txt\n");
  const auto notes = find_sources(data_, Split::kTrain).notes;
  ASSERT_EQ(notes.size(), 1);
  EXPECT_NE(notes[0].find("4 files of"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("A.TXT, b.csv, s/c.json, …"), std::string::npos) << notes[0];
}

TEST_F(SourceFiles, AFileOfTheFolderThatIsNamedTooIsReadOnce) {
  for (const auto* name : {"d/a.txt", "d/b.txt"}) write(name, "x");
  data_.train_file_dir = path("d");
  data_.train_file = path("d/../d/b.txt");
  const auto sources = find_sources(data_, Split::kTrain);
  ASSERT_EQ(sources.files.size(), 2);
  EXPECT_EQ(sources.files[1], path("d/a.txt"));
  ASSERT_EQ(sources.notes.size(), 1);
  EXPECT_NE(sources.notes[0].find("it is read once"), std::string::npos);
  data_.train_file_dir = "";
  data_.train_file = path("d/b.txt") + "," + path("d/b.txt");
  EXPECT_EQ(found(), "d/b.txt\nd/b.txt\n") << "who names a file twice means it";
}

TEST_F(SourceFiles, LinksAreFollowedOnceAndLoopsEnd) {
  write("d/real/a.txt", "x");
  write("outside/b.txt", "x");
  fs::create_directory_symlink(folder_ / "d", folder_ / "d/real/up");
  fs::create_directory_symlink(folder_ / "d/real", folder_ / "d/again");
  fs::create_directory_symlink(folder_ / "outside", folder_ / "d/out");
  data_.train_file_dir = path("d");
  EXPECT_EQ(found(), "d/out/b.txt\nd/real/a.txt\n");
}

TEST_F(SourceFiles, ListsPatternsAndNamesWithCommas) {
  for (const auto* name : {"b.txt", "a.txt", "s_1.jsonl", "s_0.jsonl", "x,y.txt"}) write(name, "x");
  data_.train_file = path("b.txt") + ", " + path("a.txt") + "," + path("s_*.jsonl");
  EXPECT_EQ(found(), "b.txt\na.txt\ns_0.jsonl\ns_1.jsonl\n");
  data_.train_file = path("x,y.txt");
  EXPECT_EQ(found(), "x,y.txt\n");
}

TEST_F(SourceFiles, OneFolderMayHoldBothSplits) {
  for (const auto* name : {"g/train.bin", "g/val.bin", "c/web_train_000001.bin",
                           "c/web_train_000002.bin", "c/web_val_000000.bin"}) {
    write(name, "xx");
  }
  data_.train_file = path("g");
  EXPECT_EQ(found(), "g/train.bin\n");
  EXPECT_EQ(found(Split::kEval), "g/val.bin\n");
  data_.train_file = "";
  data_.train_file_dir = path("c");
  EXPECT_EQ(found(), "c/web_train_000001.bin\nc/web_train_000002.bin\n");
  EXPECT_EQ(found(Split::kEval), "c/web_val_000000.bin\n");
  data_.validation_file_dir = path("g");
  EXPECT_EQ(found(Split::kEval), "g/val.bin\n");
  data_.validation_file_dir = "";
  data_.eval_file = path("g/train.bin");
  EXPECT_EQ(found(Split::kEval), "g/train.bin\n");
}

TEST_F(SourceFiles, AFileAloneHasNoSecondSplit) {
  write("train.bin", "xx");
  write("val.bin", "xx");
  data_.train_file = path("train.bin");
  EXPECT_EQ(found(Split::kEval), "");
}

TEST_F(SourceFiles, WhatIsNotThereIsNamed) {
  const auto refused_file = [&](const std::string& name) {
    data_.train_file = path(name);
    return refused();
  };
  EXPECT_NE(refused_file("none.txt").find("does not exist"), std::string::npos);
  write("a.csv", "x");
  EXPECT_NE(refused_file("a.csv").find(".jsonl"), std::string::npos);
  EXPECT_NE(refused_file("*.json").find("no file matches"), std::string::npos);
  fs::create_directory(folder_ / "empty");
  EXPECT_NE(refused_file("empty").find("holds no"), std::string::npos);
  data_.train_file = "";
  data_.train_file_dir = path("a.csv");
  EXPECT_NE(refused().find("not a folder"), std::string::npos);
  data_.train_file_dir = path("links");
  fs::create_directory(folder_ / "links");
  fs::create_symlink("nowhere", folder_ / "links/a.txt");
  EXPECT_NE(refused().find("link to nothing"), std::string::npos);
}

TEST_F(SourceFiles, TextAndTokensAreNotMixed) {
  data_.train_file = write("a.txt", "x").string() + "," + write("b.bin", "xx").string();
  EXPECT_NE(refused().find("mixes text"), std::string::npos);
}

}  // namespace
}  // namespace skein::data
