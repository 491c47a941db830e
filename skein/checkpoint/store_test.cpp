// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/store.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/reader.h"
#include "skein/core/error.h"
#include "skein/core/file_system.h"
#include "skein/core/testing.h"
#include "skein/tensor/dtype.h"

namespace skein::checkpoint {
namespace {

using tensor::TensorSlice;

struct Whole {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype;
};

const std::vector<Whole> kModelTensors = {{"wte.weight", {17, 8}, at::kBFloat16},
                                          {"h.0.weight", {5, 5, 2}, at::kFloat},
                                          {"ln.weight", {3}, at::kDouble}};
const std::vector<Whole> kOptimizerTensors = {{"wte.weight.master", {17, 8}, at::kFloat},
                                              {"wte.weight.exp_avg", {17, 8}, at::kFloat}};

int64_t count(const Whole& tensor) {
  int64_t product = 1;
  for (const int64_t dimension : tensor.shape) product *= dimension;
  return product;
}

// Values that tell tensor, element and step apart, also in bf16.
at::Tensor values(const Whole& tensor, int64_t step) {
  return (at::arange(count(tensor), at::TensorOptions(at::kFloat)) + static_cast<double>(step))
      .to(tensor.dtype);
}

std::vector<TensorEntry> entries(const std::vector<Whole>& tensors) {
  std::vector<TensorEntry> list;
  for (const auto& tensor : tensors) {
    list.push_back(
        {tensor.name, tensor::dtype_of(tensor.dtype), {tensor.shape.begin(), tensor.shape.end()}});
  }
  return list;
}

// Rank's part of one buffer in which all tensors lie one after the other: parts cross tensors, and
// some ranks own nothing of some tensors. `fill` gives a slice its memory.
std::vector<TensorSlice> slices_of(
    const std::vector<Whole>& tensors, int rank, int size,
    const std::function<at::Tensor(const Whole&, int64_t, int64_t)>& fill) {
  int64_t total = 0;
  for (const auto& tensor : tensors) total += count(tensor);
  const int64_t first = total * rank / size, last = total * (rank + 1) / size;
  std::vector<TensorSlice> slices;
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const int64_t begin = std::clamp(first - offset, int64_t{0}, count(tensor));
    const int64_t end = std::clamp(last - offset, int64_t{0}, count(tensor));
    offset += count(tensor);
    if (begin == end) continue;
    slices.push_back(
        {tensor.name, tensor.shape, tensor.dtype, begin, end, fill(tensor, begin, end)});
  }
  return slices;
}

std::vector<TensorSlice> filled(const std::vector<Whole>& tensors, int rank, int size,
                                int64_t step) {
  return slices_of(tensors, rank, size, [step](const auto& tensor, int64_t begin, int64_t end) {
    return values(tensor, step).narrow(0, begin, end - begin);
  });
}

std::vector<TensorSlice> empty(const std::vector<Whole>& tensors, int rank, int size) {
  return slices_of(tensors, rank, size, [](const auto& tensor, int64_t begin, int64_t end) {
    return at::full({end - begin}, -1, at::TensorOptions(tensor.dtype));
  });
}

Contents contents_of(int rank, int size, int64_t step) {
  return {.sets = {{.tensors = entries(kModelTensors),
                    .slices = filled(kModelTensors, rank, size, step)},
                   {.stem = kOptimizerStem,
                    .tensors = entries(kOptimizerTensors),
                    .slices = filled(kOptimizerTensors, rank, size, step)}},
          .texts = {{"config.json", "{}"},
                    {"trainer_state.json", fmt::format("{{\"step\": {}}}", step)}}};
}

void expect_equal(const std::vector<FileSet>& found, const std::vector<FileSet>& wanted) {
  for (size_t set = 0; set < wanted.size(); ++set) {
    for (size_t i = 0; i < wanted[set].slices.size(); ++i) {
      EXPECT_TRUE(at::equal(found[set].slices[i].data, wanted[set].slices[i].data))
          << wanted[set].folder << " " << wanted[set].slices[i].name;
    }
  }
}

class StoreTest : public TemporaryFolder {
 protected:
  // Runs `body` as every rank, each with a store of its own.
  void run(int size, const std::function<void(CheckpointStore&, int rank)>& body) {
    const auto token = fmt::format("token{}", ++runs_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        CheckpointStore store({.output = folder_,
                               .rank = rank,
                               .size = size,
                               .token = token,
                               .save_total_limit = limit_,
                               .on_each_node = on_each_node_,
                               .timeout = timeout_,
                               .max_shard_bytes = max_shard_bytes_},
                              memory_);
        body(store, rank);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  void save(int size, int64_t step) {
    run(size, [&](CheckpointStore& store, int rank) {
      store.save(step, contents_of(rank, size, step));
      EXPECT_TRUE(store.finish());
      EXPECT_EQ(store.last_committed(), step);
    });
  }

  void expect_loads(int size, int64_t step) {
    for (int rank = 0; rank < size; ++rank) {
      const auto wanted = contents_of(rank, size, step).sets;
      auto found = wanted;
      found[0].slices = empty(kModelTensors, rank, size);
      found[1].slices = empty(kOptimizerTensors, rank, size);
      read_checkpoint(folder_ / checkpoint_name(step), found);
      expect_equal(found, wanted);
    }
  }

  MemoryStore memory_;
  std::chrono::milliseconds timeout_{20'000};
  int64_t limit_ = 0;
  bool on_each_node_ = false;
  uint64_t max_shard_bytes_ = kDefaultShardBytes;
  int runs_ = 0;
};

TEST_F(StoreTest, WrittenByAnyNumberOfRanksReadByAnyOther) {
  for (const int writers : {1, 2, 3, 7}) {
    save(writers, writers);
    for (const int readers : {1, 2, 5}) expect_loads(readers, writers);
  }
  for (const auto name : {"model.safetensors", "optimizer.safetensors"}) {
    save(1, 40);
    const auto one = read_file(folder_ / "checkpoint-40" / name);
    save(3, 40);
    EXPECT_EQ(read_file(folder_ / "checkpoint-40" / name), one);
  }
}

TEST_F(StoreTest, LargeSetsAreSplit) {
  max_shard_bytes_ = 300;
  save(3, 1);
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint-1/model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint-1/optimizer-00002-of-00002.safetensors"));
  EXPECT_TRUE(verify(folder_ / "checkpoint-1").empty());
  expect_loads(2, 1);
}

TEST_F(StoreTest, SavedStateIsThatOfTheCall) {
  run(2, [&](CheckpointStore& store, int rank) {
    for (int64_t step = 1; step <= 3; ++step) {
      const auto contents = contents_of(rank, 2, step);
      store.save(step, contents);
      for (const auto& slice : contents.sets[0].slices) slice.data.fill_(-7);  // training goes on
    }
    EXPECT_TRUE(store.finish());
  });
  for (int64_t step = 1; step <= 3; ++step) expect_loads(1, step);
}

TEST_F(StoreTest, FailedSaveIsReportedOnAllRanksAndTheNextOneWorks) {
  save(2, 1);
  write_file_atomically(folder_ / "checkpoint-2.tmp-token2", "in the way");
  run(2, [&](CheckpointStore& store, int rank) {
    store.save(2, contents_of(rank, 2, 2));
    EXPECT_FALSE(store.finish());
    EXPECT_FALSE(store.last_committed().has_value());
    store.save(3, contents_of(rank, 2, 3));
    EXPECT_TRUE(store.finish());
  });
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-2"));
  expect_loads(1, 1);
  expect_loads(1, 3);
}

// The best so far may go when the next best is there, not before.
TEST_F(StoreTest, TheBestIsProtectedUntilTheNextBestIsCommitted) {
  limit_ = 1;
  write_file_atomically(folder_ / "checkpoint-2.tmp-token1", "in the way");
  run(2, [&](CheckpointStore& store, int rank) {
    const auto save_step = [&](int64_t step, bool is_best) {
      if (is_best) store.protect(step);
      store.save(step, contents_of(rank, 2, step));
      return store.finish();
    };
    EXPECT_TRUE(save_step(1, true));
    EXPECT_FALSE(save_step(2, true));
    EXPECT_EQ(store.last_step(), 2);
    EXPECT_TRUE(save_step(3, false));
    EXPECT_TRUE(fs::exists(folder_ / "checkpoint-1"));
    EXPECT_TRUE(save_step(4, true));
    EXPECT_TRUE(save_step(5, false));
  });
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-1"));
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint-4"));
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint-5"));
}

// A node whose disk is full has no newer one, and a run goes on from what all nodes have.
TEST_F(StoreTest, WhatAllNodesHaveStaysUntilAllHaveANewerOne) {
  limit_ = 1;
  on_each_node_ = true;
  const auto saved = [this] {
    std::vector<int64_t> steps;
    for (const auto& listed : list_checkpoints(folder_)) steps.push_back(listed.step);
    return steps;
  };
  using Steps = std::vector<int64_t>;
  run(1, [&](CheckpointStore& store, int) {
    const auto save_step = [&](int64_t step, bool is_best = false) {
      if (is_best) store.protect(step);
      store.save(step, contents_of(0, 1, step));
      return store.finish();
    };
    EXPECT_TRUE(save_step(1, true));
    store.all_nodes_have(1);
    EXPECT_TRUE(save_step(2));
    EXPECT_TRUE(save_step(3, true));  // here alone: no best
    EXPECT_TRUE(save_step(4));
    EXPECT_EQ(saved(), (Steps{4, 1}));
    store.all_nodes_have(4);
    EXPECT_TRUE(save_step(5));
    EXPECT_EQ(saved(), (Steps{5, 4, 1}));  // 1 is the best that all have
    EXPECT_TRUE(save_step(6, true));
    store.all_nodes_have(6);
    EXPECT_TRUE(save_step(7));
    EXPECT_EQ(saved(), (Steps{7, 6}));
  });
}

TEST_F(StoreTest, KeysDoNotPileUp) {
  run(2, [&](CheckpointStore& store, int rank) {
    for (int64_t step = 1; step <= 4; ++step) store.save(step, contents_of(rank, 2, step));
    store.finish();
  });
  for (int save = 1; save <= 4; ++save) {
    for (const auto what : {"ready", "result", "done/1", "ranges/1/0"}) {
      const bool last = save == 4 && std::string_view(what).starts_with("r") && what[1] == 'e';
      EXPECT_EQ(
          memory_.try_get(fmt::format("checkpoint/token1/{}-{}/{}", save, save, what)).has_value(),
          last)
          << save << what;
    }
  }
}

TEST_F(StoreTest, ModelIsExportedInPlaceOfTheOldOne) {
  max_shard_bytes_ = 300;
  const auto export_model = [&](CheckpointStore& store, int rank) {
    store.save_model(contents_of(rank, 2, 5));
  };
  run(2, export_model);
  EXPECT_TRUE(fs::exists(folder_ / "model.safetensors.index.json"));
  EXPECT_EQ(Reader(folder_).files().tensors.size(), 3U);
  max_shard_bytes_ = kDefaultShardBytes;
  run(2, export_model);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.push_back(entry.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left,
            (std::vector<std::string>{"config.json", "model.safetensors", "trainer_state.json"}));
  auto model = empty(kModelTensors, 0, 1);
  Reader(folder_).load(model);
  EXPECT_TRUE(at::equal(model[0].data, values(kModelTensors[0], 5)));
}

// Two models with the same names: the second has a folder of its own, with shards and an index.
TEST_F(StoreTest, ASecondModelHasAFolderOfItsOwn) {
  max_shard_bytes_ = 300;
  const auto both = [](int rank, int size, int64_t step) {
    auto contents = contents_of(rank, size, step);
    for (auto set : contents_of(rank, size, step + 100).sets) {
      set.folder = "critic";
      contents.sets.push_back(set);
    }
    contents.texts["critic/config.json"] = "{}";
    return contents;
  };
  run(2, [&](CheckpointStore& store, int rank) {
    store.save(5, both(rank, 2, 5));
    EXPECT_TRUE(store.finish());
    store.save_model(both(rank, 2, 5));
  });
  const auto checkpoint = folder_ / "checkpoint-5";
  EXPECT_TRUE(verify(checkpoint).empty());
  EXPECT_TRUE(fs::exists(checkpoint / "critic/model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(folder_ / "critic/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(folder_ / "critic/optimizer.safetensors.index.json"));
  for (const int size : {1, 3}) {
    for (int rank = 0; rank < size; ++rank) {
      const auto wanted = both(rank, size, 5).sets;
      auto found = wanted;
      for (auto& set : found) {
        set.slices = empty(set.is_optimizer() ? kOptimizerTensors : kModelTensors, rank, size);
      }
      read_checkpoint(checkpoint, found);
      expect_equal(found, wanted);
    }
  }
  write_file_atomically(checkpoint / "critic/model.safetensors", "");
  EXPECT_FALSE(verify(checkpoint).empty()) << "a stranger would be read in the shards' place";
}

TEST_F(StoreTest, AnAdapterTakesTheModelsPlace) {
  max_shard_bytes_ = 300;
  const auto adapter_of = [](int rank) {
    auto contents = contents_of(rank, 2, 5);
    contents.sets[0].stem = kAdapterStem;
    contents.texts["adapter_config.json"] = "{}";
    return contents;
  };
  run(2, [&](CheckpointStore& store, int rank) { store.save_model(contents_of(rank, 2, 5)); });
  run(2, [&](CheckpointStore& store, int rank) {
    store.save(5, adapter_of(rank));
    EXPECT_TRUE(store.finish());
    store.save_model(adapter_of(rank));
  });
  EXPECT_TRUE(verify(folder_ / "checkpoint-5").empty());
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors.index.json"));
  EXPECT_TRUE(fs::exists(folder_ / "adapter_config.json"));
  for (const auto& folder : {folder_, folder_ / "checkpoint-5"}) {
    const auto tensors = empty(kModelTensors, 0, 1);
    read_checkpoint(folder,
                    {{.stem = kAdapterStem, .tensors = entries(kModelTensors), .slices = tensors}});
    EXPECT_TRUE(at::equal(tensors[0].data, values(kModelTensors[0], 5)));
  }
  write_file_atomically(folder_ / "checkpoint-5/model.safetensors", "");
  EXPECT_FALSE(verify(folder_ / "checkpoint-5").empty());
  run(2, [&](CheckpointStore& store, int rank) { store.save_model(contents_of(rank, 2, 5)); });
  EXPECT_FALSE(fs::exists(folder_ / "adapter_model.safetensors"));
  EXPECT_FALSE(fs::exists(folder_ / "adapter_config.json"));
}

TEST_F(StoreTest, FailedExportThrowsOnEveryRank) {
  make_directories(folder_ / "model.safetensors.tmp-token1/full");
  run(2, [&](CheckpointStore& store, int rank) {
    EXPECT_THROW(store.save_model(contents_of(rank, 2, 5)), IoError);
  });
}

class FullDisk final : public FileSystem {
  int allocate(int, uint64_t) override {
    errno = ENOSPC;
    return -1;
  }
};

// What was written is not what was read: of two, the older may be the only whole one.
TEST_F(StoreTest, AFullDiskDoesNotTakeTheOnlyWholeCheckpoint) {
  limit_ = 5;
  run(1, [&](CheckpointStore& store, int) {
    for (const int64_t step : {1, 2}) {
      store.save(step, contents_of(0, 1, step));
      EXPECT_TRUE(store.finish());
    }
    const auto damaged = folder_ / "checkpoint-2/model.safetensors";
    auto bytes = read_file(damaged);
    bytes.back() ^= 1;
    write_file_atomically(damaged, bytes);
    FullDisk disk;
    const ScopedFileSystem scope(disk);
    store.save(3, contents_of(0, 1, 3));
    EXPECT_FALSE(store.finish());
  });
  expect_loads(1, 1);
}

// In a process of its own: a limit on threads cannot be raised again. Root has none, so that it
// becomes somebody else.
TEST_F(StoreTest, ASaveWithoutAThreadIsMadeAllTheSame) {
  fs::permissions(folder_, fs::perms::all);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobodys = 61'234;
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    if ((geteuid() == 0 && setuid(kNobodys) != 0) || setrlimit(RLIMIT_NPROC, &none) != 0) _exit(2);
    MemoryStore memory;
    CheckpointStore store({.output = folder_, .rank = 0, .size = 1, .token = "t"}, memory);
    store.prepare(contents_of(0, 1, 1));
    store.save(1, contents_of(0, 1, 1));
    _exit(store.finish() && store.last_step() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(verify(folder_ / "checkpoint-1").empty());
}

// A disk that does not answer one write: the very first, which is rank 0's, or the first that is
// not that rank's.
class HangingDisk final : public FileSystem {
 public:
  explicit HangingDisk(int rank) : rank_(rank) {}

  ssize_t write(int descriptor, std::span<const std::byte> bytes, uint64_t offset) override {
    if (is_met()) answers_.wait(false);
    return FileSystem::write(descriptor, bytes, offset);
  }
  void answer() {
    answers_ = true;
    answers_.notify_all();
  }

 private:
  bool is_met() {
    const std::lock_guard lock(mutex_);
    const auto self = std::this_thread::get_id();
    if (first_ == std::thread::id()) first_ = self;
    return (rank_ == 0) == (first_ == self) && !std::exchange(met_, true);
  }

  const int rank_;
  std::mutex mutex_;
  std::thread::id first_;
  bool met_ = false;
  std::atomic<bool> answers_ = false;
};

TEST_F(StoreTest, AWriteThatHangsIsGivenUpAndTheRunGoesOn) {
  timeout_ = std::chrono::milliseconds(400);
  for (const auto& [size, hung] : {std::pair(1, 0), std::pair(2, 0), std::pair(2, 1)}) {
    HangingDisk disk(hung);
    const ScopedFileSystem scope(disk);
    std::barrier together(size);
    testing::internal::CaptureStderr();
    run(size, [&](CheckpointStore& store, int rank) {
      store.save(1, contents_of(rank, size, 1));
      EXPECT_FALSE(store.finish());
      EXPECT_EQ(store.hangs(), rank == hung);
      store.save(2, contents_of(rank, size, 2));  // refused: the first has not returned
      EXPECT_FALSE(store.finish());
      EXPECT_EQ(store.last_step(), 2);
      together.arrive_and_wait();
      disk.answer();
      while (store.hangs()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        store.finish();
      }
      together.arrive_and_wait();
      store.save(3, contents_of(rank, size, 3));
      EXPECT_TRUE(store.finish());
      EXPECT_EQ(store.last_committed(), 3);
    });
    const auto told = testing::internal::GetCapturedStderr();
    EXPECT_PRED2(contains, told, "checkpoint-1 was not saved; training goes on: ");
    EXPECT_PRED2(contains, told, "checkpoint-2 was not saved; training goes on: ");
    EXPECT_PRED2(contains, told,
                 "'s write of checkpoint-1 has not returned: does its disk answer?");
    expect_loads(1, 3);
    EXPECT_FALSE(fs::exists(folder_ / "checkpoint-1"));
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_FALSE(contains(entry.path().filename().string(), ".tmp-")) << entry.path();
    }
    fs::remove_all(folder_ / "checkpoint-3");
  }
}

TEST_F(StoreTest, AModelIsWrittenThoughACheckpointHangs) {
  HangingDisk disk(/*rank=*/0);
  const ScopedFileSystem scope(disk);
  timeout_ = std::chrono::milliseconds(400);
  testing::internal::CaptureStderr();
  run(1, [&](CheckpointStore& store, int) {
    store.save(1, contents_of(0, 1, 1));
    store.save_model(contents_of(0, 1, 1));
    EXPECT_FALSE(store.finish());
  });
  testing::internal::GetCapturedStderr();
  EXPECT_TRUE(fs::exists(folder_ / "model.safetensors"));
  const auto left = folder_ / "checkpoint-1.tmp-token1";
  EXPECT_TRUE(fs::exists(left));
  disk.answer();  // the thread that was left behind ends
  while (fs::exists(left)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-1"));
}

}  // namespace
}  // namespace skein::checkpoint
