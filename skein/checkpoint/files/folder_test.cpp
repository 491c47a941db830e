// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <functional>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/manifest.h"
#include "skein/checkpoint/files/model_check.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/checkpoint/files/weights_digest.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/hash.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

// Renames a folder away, as rotation does, when a file of it is opened.
class Rotates final : public FileSystem {
 public:
  fs::path folder;
  int open(const fs::path& path, int flags) override {
    std::error_code ignored;
    if (path.extension() == ".safetensors") fs::rename(folder, folder.string() + ".gone", ignored);
    return FileSystem::open(path, flags);
  }
  void pause(std::chrono::milliseconds) override {}
};

class FolderTest : public TemporaryFolder {
 protected:
  void write_index(const std::string& file) {
    write_file_atomically(
        folder_ / "m/model.safetensors.index.json",
        fmt::format(R"({{"metadata":{{"total_size":1e3}},"weight_map":{{"w":"{}"}}}})", file));
  }
  void write_files(const Layout& layout, const fs::path& folder) {
    for (const auto& file : layout.files) {
      write_file_atomically(folder / file.name,
                            file.header + std::string(file.size - file.header.size(), 'x'));
    }
    if (!layout.index.empty()) write_file_atomically(folder / layout.index_name, layout.index);
  }
  FolderTest() { make_directories(folder_ / "m/in"); }
};

const std::vector<TensorEntry> kEntries = {{"w", DType::kU8, {600}},
                                           {"big", DType::kU8, {2000}},
                                           {"v", DType::kU8, {500}},
                                           {"u", DType::kU8, {400}}};

TEST_F(FolderTest, PlanSplitsLikeHuggingFace) {
  const auto layout = lay_out_files("model", kEntries, 1000);
  ASSERT_EQ(layout.files.size(), 3U);
  EXPECT_EQ(layout.files[0].name, "model-00001-of-00003.safetensors");
  EXPECT_EQ(layout.files[0].tensors[0].name, "big");
  EXPECT_EQ(layout.files[1].tensors[0].name, "w");
  EXPECT_EQ(layout.files[2].tensors.size(), 2U);
  EXPECT_EQ(layout.index, R"({
  "metadata": {
    "total_parameters": 3500,
    "total_size": 3500
  },
  "weight_map": {
    "big": "model-00001-of-00003.safetensors",
    "u": "model-00003-of-00003.safetensors",
    "v": "model-00003-of-00003.safetensors",
    "w": "model-00002-of-00003.safetensors"
  }
}
)");
  EXPECT_EQ(lay_out_files("optimizer", kEntries).files.at(0).name, "optimizer.safetensors");
  EXPECT_TRUE(lay_out_files("optimizer", {}).files.empty());
  EXPECT_TRUE(is_layout_name("model-00001-of-00003.safetensors", "model"));
  EXPECT_FALSE(is_layout_name("model-of-mine.safetensors", "model"));
}

TEST_F(FolderTest, AnAdapterIsOneFile) {
  const auto layout = lay_out_files(kAdapterStem, kEntries, 1000);
  ASSERT_EQ(layout.files.size(), 1U);
  EXPECT_EQ(layout.files[0].name, "adapter_model.safetensors");
  EXPECT_TRUE(is_weights_name("adapter_model.safetensors"));
  EXPECT_TRUE(is_weights_name("model-00001-of-00003.safetensors"));
  EXPECT_FALSE(is_weights_name("optimizer.safetensors"));
}

TEST_F(FolderTest, ADigestTellsModelsApartAndNotTheirFiles) {
  const auto of = [&](const std::string& name, const Layout& layout) {
    make_directories(folder_ / name);
    write_files(layout, folder_ / name);
    return weights_digest(open_model_files(folder_ / name));
  };
  auto entries = kEntries;
  const auto whole = of("whole", lay_out_files("model", entries));
  EXPECT_EQ(of("split", lay_out_files("model", entries, 1000)), whole);
  entries[0].name = "y";
  EXPECT_NE(of("renamed", lay_out_files("model", entries)), whole);
  const auto path = folder_ / "whole/model.safetensors";
  for (const size_t from_end : {size_t{1}, size_t{1750}, size_t{3500}}) {
    auto bytes = read_file(path);
    bytes[bytes.size() - from_end] = 'z';
    write_file_atomically(path, bytes);
    EXPECT_NE(weights_digest(open_model_files(folder_ / "whole")), whole);
  }
}

TEST_F(FolderTest, SplitModelIsOpened) {
  write_files(lay_out_files("model", kEntries, 1000), folder_ / "m");
  const auto files = open_model_files(folder_ / "m");
  EXPECT_EQ(files.tensors.size(), 4U);
  EXPECT_EQ(files.tensors.at("u").file->name, "model-00003-of-00003.safetensors");
}

TEST_F(FolderTest, ShardOfAnotherModelIsRefused) {
  write_files(lay_out_files("model", kEntries, 1000), folder_ / "m");
  write_files(lay_out_files("model", {{"w", DType::kU8, {1}}}), folder_ / "m");
  fs::rename(folder_ / "m/model.safetensors", folder_ / "m/model-00003-of-00003.safetensors");
  EXPECT_THROW(open_model_files(folder_ / "m"), IoError);
}

TEST_F(FolderTest, NamesThatLeaveTheFolderAreRefused) {
  write_files(lay_out_files("model", {{"w", DType::kU8, {1}}}), folder_);  // outside m
  write_files(lay_out_files("model", {{"w", DType::kU8, {1}}}), folder_ / "m/in");
  const auto outside = (folder_ / "model.safetensors").string();
  for (const std::string& name :
       {std::string("../model.safetensors"), outside, std::string(".."), std::string("."),
        std::string(""), std::string("/dev/zero"), std::string("in/model.safetensors")}) {
    write_index(name);
    EXPECT_THROW(open_model_files(folder_ / "m"), IoError) << name;
  }
  fs::create_symlink(outside, folder_ / "m/link.safetensors");
  write_index("link.safetensors");
  EXPECT_THROW(open_model_files(folder_ / "m"), IoError);
  ASSERT_EQ(::mkfifo((folder_ / "m/fifo").c_str(), 0600), 0);
  write_index("fifo");
  EXPECT_THROW(open_model_files(folder_ / "m"), IoError);
  fs::create_symlink("/dev/zero", folder_ / "m/device");
  write_index("device");
  EXPECT_THROW(open_model_files(folder_ / "m"), IoError);
}

TEST_F(FolderTest, LinksOfTheHubCacheAreFollowed) {
  make_directories(folder_ / "repo/blobs");
  make_directories(folder_ / "repo/snapshots/rev");
  write_files(lay_out_files("model", {{"w", DType::kU8, {1}}}), folder_ / "repo/blobs");
  fs::create_symlink("../../blobs/model.safetensors",
                     folder_ / "repo/snapshots/rev/model.safetensors");
  EXPECT_EQ(open_model_files(folder_ / "repo/snapshots/rev").tensors.size(), 1U);
}

TEST_F(FolderTest, HostileIndexIsRefused) {
  for (const std::string text :
       {"{", "[]", R"({"weight_map":{"w":1}})", R"({"weight_map":{"w":"a","w":"b"}})",
        R"({"a":[[[[[[[[[1]]]]]]]]],"weight_map":{}})"}) {
    write_file_atomically(folder_ / "m/model.safetensors.index.json", text);
    EXPECT_THROW(open_model_files(folder_ / "m"), IoError) << text;
  }
  EXPECT_THROW(open_model_files(folder_), UserError);
}

TEST_F(FolderTest, ACheckpointThatIsRotatedAwayMeanwhileIsSaidToBeGone) {
  const auto path = folder_ / "checkpoint-5";
  fs::rename(folder_ / "m", path);
  const auto layout = lay_out_files("model", {{"w", DType::kU8, {1}}});
  write_files(layout, path);
  const auto text = read_file(path / "model.safetensors");
  write_file_atomically(
      path / kManifestName,
      manifest_text(
          {.step = 5,
           .run = "r",
           .saved_at = "",
           .conditions = {},
           .files = {{"model.safetensors", text.size(), {{0, text.size(), digest(text)}}}}}));
  EXPECT_TRUE(check_model(path));
  const std::function<void()> readers[] = {[&] { check_model(path); },
                                           [&] { open_model_files(path); }};
  for (const auto& read : readers) {
    Rotates rotates;
    rotates.folder = path;
    const ScopedFileSystem scope(rotates);
    const auto why = refusal<IoError>(read);
    EXPECT_PRED2(contains, why, "checkpoint-5 is not there any more");
    EXPECT_PRED2(contains, why, "save_total_limit");
    fs::rename(path.string() + ".gone", path);
  }
}

}  // namespace
}  // namespace skein::checkpoint
