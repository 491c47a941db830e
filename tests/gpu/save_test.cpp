// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Saves from a GPU while training goes on, against saves that stop it.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "skein/algorithms/pretrain.h"
#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/reader.h"
#include "skein/checkpoint/store.h"
#include "skein/core/hash.h"
#include "skein/core/testing.h"
#include "skein/model/model.h"
#include "skein/optim/adamw.h"
#include "skein/parallel/sharded.h"
#include "skein/plan/hf_config.h"
#include "skein/tensor/copy_engine.h"
#include "skein/tensor/dtype.h"
#include "skein/train/update.h"

namespace skein {
namespace {

using checkpoint::CheckpointStore;
using tensor::dtype_of;

const at::Device kGpu(at::kCUDA, 0);

// 24 million parameters: with their states several chunks of what a save copies.
constexpr const char* kModel =
    R"({"model_type": "llama", "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 2048,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4})";

class GpuSaveTest : public TemporaryFolder {
 protected:
  GpuSaveTest() : guard_(kGpu) {}

  struct Training {
    Training(int stage, at::ScalarType dtype)
        : model(model::build(plan::parse_hf_config(kModel, "config.json"), {.dtype = dtype})),
          algorithm(*model),
          sharded(model->table(), {.stage = parallel::kStages[stage], .device = kGpu},
                  comm::Group()),
          optimizer(sharded.owned_ranges(), {}, sharded.memory()) {
      sharded.initialise(3);
      optimizer.refresh_masters();
      const auto text = (at::arange(8 * 513) * 7919 % 8192).view({8, 513});
      batch = tensor::Batch{text.slice(1, 0, 512).contiguous(), text.slice(1, 1, 513).contiguous(),
                            at::arange(8), 8 * 512};
    }

    void step(int64_t number, CheckpointStore& store) {
      train::update(
          {algorithm, sharded, optimizer, phases, [&store] { store.before_update(); }},
          {std::span(&batch, 1), {.targets = batch.num_targets}, {.seed = 1, .step = number}},
          {.learning_rate = 1e-2, .max_grad_norm = 1.0});
    }

    checkpoint::Contents contents() {
      checkpoint::Contents contents{
          .sets = {{.slices = sharded.slices_to_save(Access::kRead)},
                   {.stem = checkpoint::kOptimizerStem,
                    .slices = sharded.slices_to_save(optimizer.states())}},
          .texts = {{"config.json", "{}"}, {"trainer_state.json", "{}"}}};
      for (auto& set : contents.sets) {
        for (const auto& slice : set.slices) set.tensors.push_back(entry(slice));
      }
      return contents;
    }

    static checkpoint::TensorEntry entry(const tensor::TensorSlice& slice) {
      return {slice.name, dtype_of(slice.dtype), {slice.shape.begin(), slice.shape.end()}};
    }

    std::unique_ptr<model::Model> model;
    algorithms::Pretrain algorithm;
    parallel::Sharded sharded;
    optim::AdamW optimizer;
    tensor::Batch batch;
    train::Phases phases;
  };

  CheckpointStore make_store(const char* name, std::shared_ptr<tensor::CopyEngine> engine) {
    make_directories(folder_ / name);
    return CheckpointStore({.output = folder_ / name, .token = "t", .engine = std::move(engine)},
                           memory_);
  }

  // Every step is saved twice: by a copy that the GPU waits for, and by one that it does not.
  void expect_same(int stage, at::ScalarType dtype, int ranks_here) {
    SCOPED_TRACE(
        fmt::format("stage {}, {}, memory for {} ranks", stage, c10::toString(dtype), ranks_here));
    Training training(stage, dtype);
    auto plain = make_store("plain", nullptr);
    auto beside = make_store("beside", tensor::make_copy_engine(kGpu, {.ranks_here = ranks_here}));
    beside.prepare(training.contents());
    beside.await_prepared();
    constexpr int64_t kSteps = 4;
    for (int64_t step = 1; step <= kSteps; ++step) {
      training.step(step, beside);
      plain.save(step, training.contents());
      beside.save(step, training.contents());
      EXPECT_TRUE(beside.is_copying());
    }
    training.step(kSteps + 1, beside);
    EXPECT_TRUE(plain.finish());
    EXPECT_TRUE(beside.finish());
    for (int64_t step = 1; step <= kSteps; ++step) {
      const auto name = checkpoint::checkpoint_name(step);
      EXPECT_TRUE(checkpoint::verify(folder_ / "beside" / name).empty());
      for (const auto* file : {"model.safetensors", "optimizer.safetensors"}) {
        EXPECT_EQ(checkpoint_digest("beside", name, file), checkpoint_digest("plain", name, file))
            << name << "/" << file;
      }
    }
    expect_loads(training, stage, dtype, kSteps);
    for (const auto* name : {"plain", "beside"}) fs::remove_all(folder_ / name);
  }

  std::string checkpoint_digest(const std::string& store, const std::string& name,
                                const std::string& file) {
    return digest(read_file(folder_ / store / name / file, uint64_t{4} << 30));
  }

  // A resume on the GPU has the state that was saved: it is the state one step earlier.
  void expect_loads(Training& training, int stage, at::ScalarType dtype, int64_t step) {
    const c10::NoGradGuard no_grad;
    Training resumed(stage, dtype);
    const auto path = folder_ / "beside" / checkpoint::checkpoint_name(step);
    checkpoint::read_checkpoint(path, resumed.contents().sets);
    resumed.sharded.gather_loaded();
    resumed.sharded.gather_loaded(resumed.optimizer.states());
    CheckpointStore again = make_store("again", nullptr);
    again.save(step, resumed.contents());
    EXPECT_TRUE(again.finish());
    for (const auto* file : {"model.safetensors", "optimizer.safetensors"}) {
      const auto name = checkpoint::checkpoint_name(step);
      EXPECT_EQ(checkpoint_digest("again", name, file), checkpoint_digest("beside", name, file));
    }
    // Training has gone on meanwhile.
    EXPECT_FALSE(at::equal(training.contents().sets[0].slices[0].data,
                           resumed.contents().sets[0].slices[0].data));
    fs::remove_all(folder_ / "again");
  }

  c10::DeviceGuard guard_;
  MemoryStore memory_;
};

TEST_F(GpuSaveTest, BesideTrainingEqualsStoppingIt) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    for (const int stage : {0, 1, 2, 3}) expect_same(stage, dtype, /*ranks_here=*/1);
  }
}

// Host memory for a thousandth of it: copied in pieces, as they are written.
TEST_F(GpuSaveTest, InPiecesToo) { expect_same(0, at::kBFloat16, /*ranks_here=*/1 << 30); }

}  // namespace
}  // namespace skein
