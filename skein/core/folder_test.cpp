// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein {
namespace {

using FolderTest = TemporaryFolder;

TEST_F(FolderTest, LinksThatLeadOutAreRefused) {
  write("secret", "s");
  write("model/more/inside", "i");
  fs::create_symlink(folder_ / "secret", folder_ / "model/file");
  fs::create_symlink("..", folder_ / "model/up");
  fs::create_symlink("more/inside", folder_ / "model/near");
  const auto refused = [&](const char* path) {
    return refusal<IoError>([&] { read_beneath(folder_ / "model", path); });
  };
  EXPECT_PRED2(contains, refused("file"), "model/file leads out of its folder, to ");
  EXPECT_PRED2(contains, refused("up/secret"), "leads out of its folder");
  EXPECT_PRED2(contains, refused("../secret"), "is not a file of it");
  EXPECT_PRED2(contains, refused((folder_ / "secret").c_str()), "is not a file of it");
  EXPECT_PRED2(contains, refused("more"), "is not a regular file");
  EXPECT_EQ(read_beneath(folder_ / "model", "near"), "i");
  EXPECT_EQ(read_beneath(folder_ / "model", "more/inside"), "i");
}

TEST_F(FolderTest, LinksOfTheHubCacheAreFollowedAtEveryDepth) {
  write("hub/blobs/b", "blob");
  write("hub/secret", "s");
  const auto snapshot = folder_ / "hub/snapshots/rev";
  make_directories(snapshot / "additional_chat_templates");
  fs::create_symlink("../../blobs/b", snapshot / "tokenizer.json");
  fs::create_symlink("../../../blobs/b", snapshot / "additional_chat_templates/tool_use.jinja");
  fs::create_symlink("../../secret", snapshot / "config.json");
  EXPECT_EQ(read_beneath(snapshot, "tokenizer.json"), "blob");
  EXPECT_EQ(read_beneath(snapshot, "additional_chat_templates/tool_use.jinja"), "blob");
  EXPECT_THROW(read_beneath(snapshot, "config.json"), IoError);
}

TEST_F(FolderTest, WhatIsTooLargeIsNotRead) {
  write("f", "12345");
  EXPECT_EQ(read_beneath(folder_, "f", 5), "12345");
  EXPECT_PRED2(contains, refusal<IoError>([&] { read_beneath(folder_, "f", 4); }), "limit of 4");
}

}  // namespace
}  // namespace skein
