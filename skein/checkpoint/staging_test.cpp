// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Saves whose copies take their time: what is saved is the state of the call, whatever the order in
// which copies, updates and writes come.

#include "skein/checkpoint/staging.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/store.h"
#include "skein/core/error.h"
#include "skein/core/log_writer.h"
#include "skein/core/testing.h"

namespace skein::checkpoint {
namespace {

// A device whose copies have been issued and not begun, until somebody waits for them: the writer,
// once `may_run`, or the caller's stream through order_caller(). Thread-safe.
class SlowEngine final : public tensor::CopyEngine {
 public:
  int64_t chunk = 64;
  int64_t memory = int64_t{1} << 30;  // the budget
  int64_t allocations_left = int64_t{1} << 30;
  std::atomic<bool> may_run = true;  // else only order_caller() makes copies happen

  std::atomic<int64_t> num_issued = 0, num_done = 0, num_ordered = 0, num_allocated = 0;

  int64_t chunk_bytes() const override { return chunk; }
  int64_t budget() const override { return memory; }
  at::Tensor allocate(int64_t bytes) override {
    if (allocations_left-- <= 0) throw IoError("no more pinned memory");
    ++num_allocated;
    return at::empty({bytes}, at::TensorOptions(at::kByte));
  }
  void begin() override {}
  void copy(const at::Tensor& target, const at::Tensor& source) override {
    const std::lock_guard lock(mutex_);
    pending_.push_back([target, source] { target.copy_(source); });
    ++num_issued;
  }
  std::unique_ptr<tensor::CopyEngine::Mark> mark() override {
    return std::make_unique<SlowMark>(*this, num_issued);
  }

 private:
  class SlowMark final : public tensor::CopyEngine::Mark {
   public:
    SlowMark(SlowEngine& engine, int64_t position) : engine_(engine), position_(position) {}
    bool reached() const override {
      if (engine_.may_run) engine_.run_until(position_);
      return engine_.num_done >= position_;
    }
    void order_caller() const override {
      ++engine_.num_ordered;
      engine_.run_until(position_);
    }

   private:
    SlowEngine& engine_;
    int64_t position_;
  };

  void run_until(int64_t position) {
    const std::lock_guard lock(mutex_);
    while (num_done < position) {
      pending_.front()();
      pending_.pop_front();
      ++num_done;
    }
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> pending_;
};

// Tensors that lie in flat memory, as those of a model do: padded, and neighbours.
class StagingTest : public TemporaryFolder {
 protected:
  StagingTest() {
    set_log_writer([this](std::string_view line) { log_ += line; });
    for (int i = 0; i < kTensors; ++i) {
      const auto name = fmt::format("w{}", i);
      auto &model = contents_.sets[0], &optimizer = contents_.sets[1];
      model.tensors.push_back({name, DType::kF32, {static_cast<uint64_t>(size_of(i))}});
      model.slices.push_back({name,
                              {size_of(i)},
                              at::kFloat,
                              0,
                              size_of(i),
                              flat_.narrow(0, i * kPadded, size_of(i))});
      optimizer.tensors.push_back({name + ".m", DType::kBF16, {static_cast<uint64_t>(kPadded)}});
      optimizer.slices.push_back({name + ".m",
                                  {kPadded},
                                  at::kBFloat16,
                                  0,
                                  kPadded,
                                  states_.narrow(0, i * kPadded, kPadded)});
    }
    save_with(nullptr, 1);
    EXPECT_TRUE(store_->finish());
    store_.reset();
  }
  ~StagingTest() override {
    store_.reset();
    set_log_writer({});
  }

  static int64_t size_of(int tensor) { return kPadded - 7 * tensor; }

  void save_with(std::shared_ptr<SlowEngine> engine, int64_t step) {
    if (!store_) {
      store_ = std::make_unique<CheckpointStore>(
          StoreOptions{.output = folder_, .token = fmt::format("t{}", step), .engine = engine},
          memory_);
    }
    store_->save(step, contents_);
  }

  // Byte for byte what plain copies wrote.
  void expect_saved(int64_t step) {
    for (const auto* name : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(read_file(folder_ / checkpoint_name(step) / name),
                read_file(folder_ / "checkpoint-1" / name));
    }
    EXPECT_TRUE(verify(folder_ / checkpoint_name(step)).empty());
  }

  int count_in_log(const std::string& words) {
    int count = 0;
    for (auto at = log_.find(words); at != std::string::npos; at = log_.find(words, at + 1))
      ++count;
    return count;
  }

  static constexpr int kTensors = 5;
  static constexpr int64_t kPadded = 128;
  static constexpr int64_t kBytes = kTensors * kPadded * (4 + 2);

  at::Tensor flat_ = at::arange(kTensors * kPadded, at::kFloat);
  at::Tensor states_ = at::arange(kTensors * kPadded, at::kFloat).to(at::kBFloat16);
  Contents contents_{.sets = {{}, {.stem = kOptimizerStem}},
                     .texts = {{"config.json", "{}"}, {"trainer_state.json", "{}"}}};
  MemoryStore memory_;
  std::string log_;
  std::unique_ptr<CheckpointStore> store_;
};

TEST_F(StagingTest, AnUpdateComesAfterTheCopies) {
  const auto engine = std::make_shared<SlowEngine>();
  engine->may_run = false;
  for (int64_t step = 2; step <= 4; ++step) {
    save_with(engine, step);
    EXPECT_TRUE(store_->is_copying());
    EXPECT_GT(engine->num_issued, engine->num_done);  // the caller goes on meanwhile
    store_->before_update();
    EXPECT_FALSE(store_->is_copying());
    const auto saved = flat_.clone();
    flat_.fill_(-7);
    store_->before_update();  // nothing left to wait for
    EXPECT_TRUE(store_->finish());
    flat_.copy_(saved);
    EXPECT_EQ(engine->num_ordered, step - 1);
    expect_saved(step);
  }
  EXPECT_EQ(log_, "");
}

// The engine of this test would notice a loop that does not wait.
TEST_F(StagingTest, AnUpdateThatDoesNotWaitIsSeenInTheFile) {
  const auto engine = std::make_shared<SlowEngine>();
  engine->may_run = false;
  save_with(engine, 2);
  flat_.fill_(-7);
  engine->may_run = true;
  EXPECT_TRUE(store_->finish());
  EXPECT_NE(read_file(folder_ / "checkpoint-2/model.safetensors"),
            read_file(folder_ / "checkpoint-1/model.safetensors"));
}

TEST_F(StagingTest, AnySizeOfChunksAndAnyBudget) {
  int64_t step = 2;
  for (const int64_t chunk : {64, 128, 192, 1024, 1 << 20}) {
    for (const int64_t budget : {0, 512, 1 << 30}) {
      SCOPED_TRACE(fmt::format("chunks of {} bytes, budget {}", chunk, budget));
      const auto engine = std::make_shared<SlowEngine>();
      engine->chunk = chunk;
      engine->memory = budget;
      log_.clear();
      for (int save = 0; save < 2; ++save, ++step) {
        save_with(engine, step);
        store_->before_update();
        const auto weights = flat_.clone(), states = states_.clone();
        flat_.fill_(-7);
        states_.fill_(-7);
        EXPECT_TRUE(store_->finish());
        flat_.copy_(weights);
        states_.copy_(states);
        expect_saved(step);
      }
      const bool is_short = std::max(4 * chunk, budget) < kBytes;
      EXPECT_EQ(count_in_log("training waits while the rest is written"), is_short ? 1 : 0);
      EXPECT_LE(engine->num_allocated * chunk, std::max({4 * chunk, budget, chunk}));
      store_.reset();
    }
  }
}

TEST_F(StagingTest, FailedSaveLetsTheLoopGoOn) {
  const auto engine = std::make_shared<SlowEngine>();
  engine->memory = 0;  // most is not copied when the write fails
  write_file_atomically(folder_ / "checkpoint-2.tmp-t2", "in the way");
  save_with(engine, 2);
  store_->before_update();
  EXPECT_FALSE(store_->finish());
  save_with(engine, 3);
  store_->before_update();
  EXPECT_TRUE(store_->finish());
  expect_saved(3);
}

// What lies on a disk may change under the copy: it is looked at once more before the commit.
TEST_F(StagingTest, WhatWasCopiedIsComparedBeforeTheCommit) {
  bool is_right = true, was_committed = true;
  const auto save = [&](int64_t step) {
    CheckpointStore store({.output = folder_,
                           .token = fmt::format("c{}", step),
                           .compare_copied =
                               [&] {
                                 was_committed = fs::exists(folder_ / checkpoint_name(step));
                                 if (!is_right) throw IoError("the disk has changed it");
                               }},
                          memory_);
    store.save(step, contents_);
    EXPECT_TRUE(store.finish());
  };
  save(2);
  EXPECT_FALSE(was_committed);
  expect_saved(2);
  is_right = false;
  EXPECT_THROW(save(3), IoError);
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-3"));
}

TEST_F(StagingTest, RunThatEndsDoesNotWaitForCopies) {
  const auto engine = std::make_shared<SlowEngine>();
  engine->may_run = false;
  const auto fail = [&] {
    CheckpointStore store({.output = folder_, .token = "t", .engine = engine}, memory_);
    store.save(2, contents_);
    throw CommError("a peer is gone");
  };
  EXPECT_THROW(fail(), CommError);
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-2"));
}

TEST_F(StagingTest, LessMemoryThanExpectedIsUsed) {
  for (const int64_t allocations : {0, 1, 3}) {
    const auto engine = std::make_shared<SlowEngine>();
    engine->allocations_left = allocations;
    log_.clear();
    for (const int64_t step : {2 + 2 * allocations, 3 + 2 * allocations}) {
      save_with(engine, step);
      store_->before_update();
      EXPECT_TRUE(store_->finish());
      expect_saved(step);
    }
    EXPECT_EQ(count_in_log("no more pinned memory"), 1);
    store_.reset();
  }
}

TEST_F(StagingTest, MemoryIsThereBeforeTheFirstSave) {
  const auto engine = std::make_shared<SlowEngine>();
  store_ = std::make_unique<CheckpointStore>(
      StoreOptions{.output = folder_, .token = "t", .engine = engine}, memory_);
  store_->prepare(contents_);
  store_->await_prepared();
  const int64_t prepared = engine->num_allocated;
  int64_t bytes = 0;
  for (const auto& set : contents_.sets) {
    for (const auto& slice : set.slices) bytes += static_cast<int64_t>(slice.data.nbytes());
  }
  EXPECT_GE(prepared * engine->chunk, bytes);
  for (int64_t step = 2; step <= 3; ++step) {
    save_with(engine, step);
    store_->before_update();
    EXPECT_TRUE(store_->finish());
    expect_saved(step);
  }
  EXPECT_EQ(engine->num_allocated, prepared);
}

TEST_F(StagingTest, NeighboursAreCopiedAsOne) {
  const auto engine = std::make_shared<SlowEngine>();
  engine->chunk = 1 << 20;
  save_with(engine, 2);
  EXPECT_TRUE(store_->finish());
  EXPECT_EQ(engine->num_issued, 2);  // all weights, all states
  expect_saved(2);
}

TEST_F(StagingTest, ExportNeedsLittleMemory) {
  const auto engine = std::make_shared<SlowEngine>();
  store_ = std::make_unique<CheckpointStore>(
      StoreOptions{.output = folder_, .token = "t", .engine = engine}, memory_);
  store_->save_model(contents_);
  EXPECT_LE(engine->num_allocated, 4);
  EXPECT_EQ(read_file(folder_ / "model.safetensors"),
            read_file(folder_ / "checkpoint-1/model.safetensors"));
  EXPECT_EQ(log_, "");
}

}  // namespace
}  // namespace skein::checkpoint
