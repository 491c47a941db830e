// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_folder.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/store.h"
#include "skein/core/testing.h"

namespace skein::train {
namespace {

// Two nodes of two ranks each, with one folder or two.
class RunFolderTest : public TemporaryFolder {
 protected:
  fs::path folder_of(int node) const { return folder_ / fmt::format("node-{}", node); }

  // Every tensor is one range of the manifest.
  void save(int node, int64_t step) {
    make_directories(folder_of(node));
    checkpoint::CheckpointStore store({.output = folder_of(node), .token = "t"}, store_);
    checkpoint::FileSet model;
    for (int i = 0; i < kTensors; ++i) {
      const auto name = fmt::format("w{:02}", i);
      model.tensors.push_back({name, DType::kF32, {kElements}});
      model.slices.push_back({name, {kElements}, at::kFloat, 0, kElements, at::zeros({kElements})});
    }
    store.save(step, {.sets = {model}});
    EXPECT_TRUE(store.finish());
  }

  static constexpr int kTensors = 16;
  static constexpr int64_t kElements = 1000;

  // What all ranks agree on; each must name its own node's folder.
  std::optional<std::string> newest(bool own_output) {
    std::vector<std::optional<fs::path>> found(4);
    comm::run_ranks(4, [&](comm::Group& group) {
      const int node = own_output ? group.rank() / 2 : 0;
      World world{.group = group,
                  .store = store_,
                  .local_rank = group.rank() % 2,
                  .token = "t",
                  .stop_requested = [] { return false; },
                  .local_size = 2,
                  .own_output = own_output};
      const auto before = bytes_read_by_this_thread();
      const auto newest = newest_checkpoint(folder_of(node), world);
      bytes_read_[static_cast<size_t>(group.rank())] = bytes_read_by_this_thread() - before;
      EXPECT_TRUE(!newest || newest->path.parent_path() == folder_of(node));
      if (newest) found[static_cast<size_t>(group.rank())] = newest->path;
    });
    for (const auto& path : found) {
      EXPECT_EQ(path ? path->filename() : "", found[0] ? found[0]->filename() : "");
    }
    return found[0] ? std::optional(found[0]->filename().string()) : std::nullopt;
  }

  MemoryStore store_;
  std::vector<uint64_t> bytes_read_ = std::vector<uint64_t>(4);  // by rank, in the last newest()
};

TEST_F(RunFolderTest, EveryRankReadsItsShare) {
  EXPECT_EQ(newest(false), std::nullopt);
  for (const int step : {1, 4}) save(0, step);
  EXPECT_EQ(newest(false), "checkpoint-4");
  const auto manifest = fs::file_size(folder_of(0) / "checkpoint-4/manifest.json");
  const auto bytes = fs::file_size(folder_of(0) / "checkpoint-4/model.safetensors");
  uint64_t sum = 0;
  for (const auto read : bytes_read_) {
    sum += read - manifest;
    EXPECT_LE(read - manifest, bytes / 4 + kElements * 4);
  }
  EXPECT_EQ(sum, bytes + 2 * manifest);  // the first has read both manifests to see whose they are
}

// Whichever rank reads the byte that has changed.
TEST_F(RunFolderTest, DamageThatOneRankFindsIsDamageForAll) {
  for (const bool own_output : {false, true}) {
    for (const int step : {1, 4}) {
      for (const int node : {0, 1}) save(node, step);
    }
    const auto path = folder_of(own_output ? 1 : 0) / "checkpoint-4/model.safetensors";
    const auto whole = read_file(path);
    for (size_t i = 0; i < kTensors; ++i) {
      auto broken = whole;
      broken[whole.size() - 1 - i * kElements * 4] ^= 1;
      write_file_atomically(path, broken);
      EXPECT_EQ(newest(own_output), "checkpoint-1") << i;
    }
    write_file_atomically(path, whole);
    EXPECT_EQ(newest(own_output), "checkpoint-4");
    write_file_atomically(path, whole.substr(1));
    EXPECT_EQ(newest(own_output), "checkpoint-1");
  }
}

TEST_F(RunFolderTest, NodesGoOnFromTheNewestThatAllHave) {
  for (const int step : {1, 2, 4}) save(0, step);
  EXPECT_EQ(newest(true), std::nullopt);
  for (const int step : {1, 2, 3}) save(1, step);
  EXPECT_EQ(newest(true), "checkpoint-2");
  save(1, 4);
  EXPECT_EQ(newest(true), "checkpoint-4");
  write_file_atomically(folder_of(0) / "checkpoint-4/model.safetensors", "damaged");
  EXPECT_EQ(newest(true), "checkpoint-2");
}

}  // namespace
}  // namespace skein::train
