// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/output_folder.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "skein/core/error.h"
#include "skein/core/stop_signals.h"
#include "skein/core/testing.h"

namespace skein::convert {
namespace {

class Output : public TemporaryFolder {
 protected:
  void fill(const OutputOptions& options, uint64_t bytes = 1) {
    OutputFolder out(options, bytes);
    write_file_atomically(out.path() / "config.json", "new");
    out.commit();
  }

  std::string refused(const OutputOptions& options) {
    return refusal<UserError>([&] { fill(options); });
  }

  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
};

TEST_F(Output, IsThereWholeOrNotAtAll) {
  fill({.folder = folder_ / "deep/er/out/"});
  EXPECT_EQ(read_file(folder_ / "deep/er/out/config.json"), "new");
  {
    const OutputFolder given_up({.folder = folder_ / "x"}, 1);
    EXPECT_EQ(entries(), 2U);
  }
  EXPECT_EQ(entries(), 1U);
  fs::create_directory(folder_ / "empty");
  fill({.folder = folder_ / "empty"});
  EXPECT_TRUE(fs::exists(folder_ / "empty/config.json"));
}

TEST_F(Output, ReplacesAModelOnlyWhenTold) {
  write("out/config.json", "old");
  for (const char* name :
       {"model.safetensors", "model-00001-of-00002.safetensors", "model.safetensors.index.json",
        "tokenizer.json", "generation_config.json", "additional_chat_templates/tool.jinja"}) {
    write(std::string("out/") + name, "old");
  }
  EXPECT_PRED2(contains, refused({.folder = folder_ / "out"}), "give --overwrite");
  EXPECT_EQ(read_file(folder_ / "out/config.json"), "old");
  fill({.folder = folder_ / "out", .overwrite = true});
  EXPECT_EQ(read_file(folder_ / "out/config.json"), "new");
  EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors"));
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Output, NeverRemovesMoreThanAModel) {
  write("plain/notes.txt", "mine");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "plain", .overwrite = true}), "is no model");
  write("run/config.json", "x");
  write("run/checkpoint-1/config.json", "x");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "run", .overwrite = true}), "checkpoint-1");
  write("record/config.json", "x");
  write("record/.skein-run", "x");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "record", .overwrite = true}), ".skein-run");
  write("mine/config.json", "x");
  write("mine/results.csv", "precious");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "mine", .overwrite = true}), "results.csv");
  EXPECT_EQ(read_file(folder_ / "mine/results.csv"), "precious");
  write("notes/config.json", "x");
  write("notes/additional_chat_templates/notes.txt", "mine");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "notes", .overwrite = true}), "templates");
  fs::create_directory_symlink("run", folder_ / "link");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "link", .overwrite = true}), "is a link");
  fs::create_directory(folder_ / "empty");
  fs::create_directory_symlink("empty", folder_ / "link_to_empty");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "link_to_empty"}), "is a link");
  write("file", "x");
  EXPECT_PRED2(contains, refused({.folder = folder_ / "file"}), "is not a folder");
  EXPECT_PRED2(contains, refused({.folder = ""}), "--out DIR is missing");
}

TEST_F(Output, NeverReplacesWhatItReads) {
  write("base/config.json", "x");
  EXPECT_PRED2(
      contains,
      refused({.folder = folder_ / "x/../base", .overwrite = true, .inputs = {folder_ / "base"}}),
      "is what is read");
}

// The signal ends the program, after the temporary folder has gone.
TEST_F(Output, AStopLeavesNothingBehind) {
  const auto write_and_be_stopped = [&](int signal) {
    // Shells start what runs in the background with these ignored.
    for (const int one : {SIGINT, SIGQUIT}) std::signal(one, SIG_DFL);
    try {
      const OutputFolder out({.folder = folder_ / "out"}, 1);
      write_file_atomically(out.path() / "config.json", "new");
      ::raise(signal);
      end_if_stop_waits();
    } catch (const Stopped&) {
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(write_and_be_stopped(SIGTERM), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(write_and_be_stopped(SIGQUIT), testing::KilledBySignal(SIGINT), "");
  EXPECT_EQ(entries(), 0U);
}

TEST_F(Output, WhatAKilledOneHasLeftGoes) {
  const auto write_and_be_killed = [&] {
    const OutputFolder out({.folder = folder_ / "out"}, 1);
    write_file_atomically(out.path() / "config.json", "new");
    ::raise(SIGKILL);
  };
  EXPECT_EXIT(write_and_be_killed(), testing::KilledBySignal(SIGKILL), "");
  ASSERT_EQ(entries(), 1U);
  fill({.folder = folder_ / "other"});
  EXPECT_EQ(entries(), 2U) << "it is not of this one";
  fill({.folder = folder_ / "out"});
  EXPECT_EQ(entries(), 2U);
}

TEST_F(Output, WhatIsWrittenNowOrIsSomebodysStays) {
  write("out.tmp-0123456789abcdef/notes.txt", "mine");
  write("out.tmp-notes/config.json", "mine");
  OutputFolder first({.folder = folder_ / "out"}, 1);
  write_file_atomically(first.path() / "config.json", "first");
  fill({.folder = folder_ / "out"});
  EXPECT_TRUE(fs::exists(first.path() / "config.json"));
  EXPECT_TRUE(fs::exists(folder_ / "out.tmp-0123456789abcdef/notes.txt"));
  EXPECT_TRUE(fs::exists(folder_ / "out.tmp-notes/config.json"));
}

TEST_F(Output, TheDiskIsAskedFirst) {
  const auto why = refusal<DiskFull>([&] { fill({.folder = folder_ / "out"}, uint64_t{1} << 60); });
  EXPECT_PRED2(contains, why, "1048576.0 TiB are needed");
  EXPECT_EQ(entries(), 0U);
}

}  // namespace
}  // namespace skein::convert
