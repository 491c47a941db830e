// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_folder.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

#include "skein/checkpoint/catalog.h"
#include "skein/checkpoint/store.h"
#include "skein/core/temporary_folder.h"

namespace skein::train {
namespace {

// Two nodes of two ranks each, with one folder or two.
class RunFolderTest : public testing::Test {
 protected:
  RunFolderTest() { folder_ = make_temporary_folder("folder"); }
  ~RunFolderTest() override { fs::remove_all(folder_); }

  fs::path folder_of(int node) const { return folder_ / fmt::format("node-{}", node); }

  void save(int node, int64_t step) {
    make_directories(folder_of(node));
    checkpoint::CheckpointStore store({.output = folder_of(node), .token = "t"}, store_);
    store.save(step, {.model = {{"w", checkpoint::Dtype::kF32, {2}}},
                      .optimizer = {},
                      .model_slices = {{"w", {2}, at::kFloat, 0, 2, at::zeros({2})}},
                      .optimizer_slices = {},
                      .texts = {}});
    EXPECT_TRUE(store.finish());
  }

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
      auto path = newest_checkpoint(folder_of(node), world);
      EXPECT_TRUE(!path || path->parent_path() == folder_of(node));
      found[static_cast<size_t>(group.rank())] = std::move(path);
    });
    for (const auto& path : found) {
      EXPECT_EQ(path ? path->filename() : "", found[0] ? found[0]->filename() : "");
    }
    return found[0] ? std::optional(found[0]->filename().string()) : std::nullopt;
  }

  fs::path folder_;
  MemoryStore store_;
};

TEST_F(RunFolderTest, OneFolderIsReadByOneRank) {
  EXPECT_EQ(newest(false), std::nullopt);
  for (const int step : {1, 4}) save(0, step);
  EXPECT_EQ(newest(false), "checkpoint-4");
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
