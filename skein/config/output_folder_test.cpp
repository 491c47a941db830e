// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/output_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::config {
namespace {

class OutputFolderTest : public TemporaryFolder {
 protected:
  std::string refused(const std::string& model, const std::string& output,
                      const std::string& more = "seed=1") {
    const std::vector<std::string> words = {"model_name_or_path=" + model, "output_dir=" + output,
                                            more};
    return refusal<UserError>([&] { check_output_folder(load(words)); });
  }
};

TEST_F(OutputFolderTest, TheModelsOwnFolderIsRefusedHoweverItIsWritten) {
  write("base/config.json", "{}");
  fs::create_symlink(folder_ / "base", folder_ / "link");
  const auto base = (folder_ / "base").string();
  for (const auto& output : {base, base + "/", base + "/.", (folder_ / "link").string()}) {
    EXPECT_PRED2(contains, refused(base, output), "are the same folder") << output;
  }
  for (const auto& output : {base + "/out", (folder_ / "new").string()}) {
    EXPECT_EQ(refused(base, output), "") << output;
  }
}

TEST_F(OutputFolderTest, DataAndOutputAreTwoFolders) {
  write("d/a.txt", "x");
  const auto data = (folder_ / "d").string();
  for (const auto* key : {"train_file_dir=", "train_file=", "validation_file_dir="}) {
    EXPECT_PRED2(contains, refused("base", data + "/.", key + data), "would be read as data");
    EXPECT_EQ(refused("base", data + "/out", key + data), "");
  }
}

TEST_F(OutputFolderTest, FreshDoesNotRemoveTheModelThatItBeginsWith) {
  write("out/checkpoint-5/config.json", "{}");
  const auto model = (folder_ / "out/checkpoint-5").string(), output = (folder_ / "out").string();
  EXPECT_EQ(refused(model, output), "");
  EXPECT_PRED2(contains, refused(model, output, "--fresh"), "--fresh removes");
}

TEST_F(OutputFolderTest, ALinkOfAnotherUserIsNotFollowed) {
  fs::create_directory(folder_ / "runs");
  fs::create_directory_symlink("/nowhere", folder_ / "logs");
  EXPECT_NO_THROW(check_subfolders(folder_, ::geteuid()));
  EXPECT_PRED2(contains, refusal<UserError>([&] { check_subfolders(folder_, ::geteuid() + 1); }),
               "logs is a link that another user has made");
  EXPECT_NO_THROW(check_subfolders(folder_ / "absent", ::geteuid() + 1));
}

TEST_F(OutputFolderTest, ALinkOfAnotherUserIsNotFollowedDeeperEither) {
  for (const char* deeper : {"attempt_0", "attempt_0/1"}) {
    fs::remove_all(folder_ / "logs");
    fs::create_directories((folder_ / "logs" / deeper).parent_path());
    fs::create_directory_symlink("/nowhere", folder_ / "logs" / deeper);
    EXPECT_NO_THROW(check_subfolders(folder_, ::geteuid()));
    EXPECT_PRED2(contains, refusal<UserError>([&] { check_subfolders(folder_, ::geteuid() + 1); }),
                 std::string(deeper) + " is a link that another user has made");
  }
}

}  // namespace
}  // namespace skein::config
