// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/run_state.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "skein/adapter/adapter_config.h"
#include "skein/adapter/tensor_names.h"
#include "skein/checkpoint/files/catalog.h"
#include "skein/checkpoint/reader.h"
#include "skein/checkpoint/store.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/testing.h"
#include "skein/optim/adamw.h"

namespace skein::train {
namespace {

constexpr const char* kModel =
    R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 512,
        "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4,
        "attn_pdrop": 0})";

plan::Tuning adapters() {
  return {.lora = adapter::parse_adapter_config(
              R"({"peft_type": "LORA", "r": 3, "target_modules": ["c_attn", "wte"],
                  "modules_to_save": ["ln_f"]})",
              "adapter_config.json")};
}

// One way to hold a run's state in memory.
struct Holding {
  int stage = 0;
  int ranks = 1;
  optim::Offload offload{};
  config::OptimizerConfig optimizer{};

  parallel::ShardOptions options() const {
    return {.stage = parallel::kStages[stage],
            .offload = offload,
            .disk = {.folder = fs::temp_directory_path(), .block_bytes = 4096}};
  }
  std::string text() const {
    return fmt::format("stage {}, {} ranks, states in medium {}, shards in {}", stage, ranks,
                       static_cast<int>(offload.states), static_cast<int>(offload.parameters));
  }
};

std::vector<Holding> all_holdings(const config::OptimizerConfig& optimizer = {}) {
  std::vector<Holding> all;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int stage : {0, 1, 2, 3}) {
      constexpr auto kHost = Medium::kPinnedHost;
      constexpr auto kDisk = Medium::kDisk;
      for (const auto& offload : {optim::Offload{}, optim::Offload{.states = kHost, .ratio = 0.5},
                                  optim::Offload{.states = kHost, .parameters = kHost},
                                  optim::Offload{.states = kDisk, .parameters = kDisk}}) {
        all.push_back({stage, ranks, offload, optimizer});
      }
    }
  }
  return all;
}

// What a run is made of, as far as its state is concerned.
struct Parts {
  Parts(const Holding& holding, at::ScalarType dtype, comm::Group group,
        const plan::Tuning& tuning = {})
      : architecture(plan::parse_hf_config(kModel, "config.json")),
        model(model::build(architecture, {.dtype = dtype, .tuning = tuning})),
        sharded(model->table(), holding.options(), std::move(group)),
        optimizer(sharded.owned_ranges(), holding.optimizer, sharded.memory()),
        metrics({}),
        state({architecture, *model, sharded, optimizer, metrics},
              {.identity = {.data_digest = "d",
                            .global_batch = 8,
                            .total_steps = 9,
                            .tuning = {.adapter_config = tuning.lora ? "{}" : ""}},
               .epochs_of = [](int64_t step) { return static_cast<double>(step) / 3; }}) {}

  std::vector<tensor::TensorSlice> all_kept() {
    auto slices = sharded.kept_slices(Access::kSet);
    for (auto& slice : sharded.kept_slices(optimizer.states(Access::kSet))) slices.push_back(slice);
    return slices;
  }

  plan::HfConfig architecture;
  std::unique_ptr<model::Model> model;
  parallel::Sharded sharded;
  optim::AdamW optimizer;
  MetricLog metrics;
  RunState state;
};

// Unlike those of any other tensor, and alike for every split.
at::Tensor values(const tensor::TensorSlice& slice) {
  const auto key = static_cast<double>(hash64(slice.name) % 1000);
  const auto all = at::arange(slice.begin, slice.end, at::kDouble) * 3 + key;
  return (slice.dtype == at::kByte ? all.remainder(251) : all).to(slice.dtype);
}

// The same, but a master has its weight's, unrounded.
at::Tensor trained_values(tensor::TensorSlice slice) {
  constexpr std::string_view kSuffix = ".master";
  if (slice.name.ends_with(kSuffix)) slice.name.resize(slice.name.size() - kSuffix.size());
  return values(slice);
}

class RunStateTest : public testing::Test {
 protected:
  RunStateTest() { folder_ = make_temporary_folder("state"); }
  ~RunStateTest() override { fs::remove_all(folder_); }

  void save(const Holding& holding, at::ScalarType dtype) {
    MemoryStore store;
    comm::run_ranks(holding.ranks, [&](comm::Group& group) {
      const c10::NoGradGuard no_grad;
      Parts run(holding, dtype, group);
      for (auto& slice : run.all_kept()) slice.data.copy_(values(slice));
      run.optimizer.set_num_updates(7);
      checkpoint::CheckpointStore saver(
          {.output = folder_, .rank = group.rank(), .size = group.size(), .token = "t"}, store);
      saver.save(7, run.state.contents(7));
      EXPECT_TRUE(saver.finish());
    });
  }

  // Loads on every rank, compares all that is in memory, and returns the most bytes that a rank
  // has read.
  uint64_t load(const Holding& holding, at::ScalarType dtype, bool weights_alone = false) {
    uint64_t most = 0;
    std::mutex mutex;
    comm::run_ranks(holding.ranks, [&](comm::Group& group) {
      const c10::NoGradGuard no_grad;
      Parts run(holding, dtype, group);
      const auto before = bytes_read_by_this_thread();
      if (weights_alone) {
        run.state.policy().load_weights(folder_ / "checkpoint-7", /*seed=*/1);
      } else {
        EXPECT_EQ(run.state.restore(folder_ / "checkpoint-7"), 7);
        EXPECT_EQ(run.optimizer.num_updates(), 7);
      }
      const auto read = bytes_read_by_this_thread() - before;
      for (const auto& slice :
           weights_alone ? run.sharded.kept_slices(Access::kRead) : run.all_kept()) {
        EXPECT_TRUE(at::equal(slice.data, values(slice)))
            << slice.name << " at " << holding.text() << ", rank " << group.rank();
      }
      const std::lock_guard lock(mutex);
      most = std::max(most, read);
    });
    return most;
  }

  // Digests of a checkpoint's files. Who wrote which part stands in the manifest alone.
  std::map<std::string, std::string> saved_files() {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_ / "checkpoint-7")) {
      const auto name = entry.path().filename().string();
      if (name != checkpoint::kManifestName) files[name] = digest(read_file(entry.path()));
    }
    return files;
  }

  uint64_t data_bytes(const char* stem) {
    const checkpoint::Reader reader(folder_ / "checkpoint-7", stem);
    uint64_t sum = 0;
    for (const auto& [name, stored] : reader.files().tensors) {
      sum += stored.tensor->end - stored.tensor->begin;
    }
    return sum;
  }

  fs::path folder_;
};

// So any of them loads what any other has saved.
TEST_F(RunStateTest, EveryHoldingSavesTheSameBytesAndLoadsThem) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    std::map<std::string, std::string> expected;
    for (const auto& holding : all_holdings()) {
      save(holding, dtype);
      const auto files = saved_files();
      if (expected.empty()) expected = files;
      EXPECT_EQ(files, expected) << holding.text();
      load(holding, dtype);
    }
    EXPECT_TRUE(expected.contains("model.safetensors"));
    EXPECT_TRUE(expected.contains("optimizer.safetensors"));
    EXPECT_TRUE(expected.contains("trainer_state.json"));
  }
}

// The same without masters.
TEST_F(RunStateTest, EveryHoldingSavesPureBf16) {
  std::map<std::string, std::string> expected;
  for (const auto& holding : all_holdings({.pure_bf16 = true})) {
    save(holding, at::kBFloat16);
    const auto files = saved_files();
    if (expected.empty()) expected = files;
    EXPECT_EQ(files, expected) << holding.text();
    load(holding, at::kBFloat16);
    load(holding, at::kBFloat16, /*weights_alone=*/true);
  }
  const checkpoint::Reader reader(folder_ / "checkpoint-7", "optimizer");
  for (const auto& [name, stored] : reader.files().tensors) {
    EXPECT_EQ(stored.tensor->dtype, DType::kBF16) << name;
    EXPECT_FALSE(name.ends_with(".master")) << name;
  }
}

// The same of moments in 8 bits, whose scales have an entry for 128 elements.
TEST_F(RunStateTest, EveryHoldingSavesMomentsIn8Bits) {
  std::map<std::string, std::string> expected;
  for (const auto& holding : all_holdings({.optim = config::OptimizerKind::kAdamW8bit})) {
    save(holding, at::kBFloat16);
    const auto files = saved_files();
    if (expected.empty()) expected = files;
    EXPECT_EQ(files, expected) << holding.text();
    load(holding, at::kBFloat16);
  }
  const checkpoint::Reader reader(folder_ / "checkpoint-7", "optimizer");
  const auto& bias = *reader.files().tensors.at("transformer.h.0.attn.c_attn.bias.exp_avg").tensor;
  EXPECT_EQ(bias.dtype, DType::kU8);
  const auto& scales =
      *reader.files().tensors.at("transformer.h.0.attn.c_attn.bias.exp_avg_scale").tensor;
  EXPECT_EQ(scales.shape, (std::vector<uint64_t>{2}));  // of 192 elements
}

// At every stage: what a rank keeps beyond its shard comes from the other ranks.
TEST_F(RunStateTest, EachRankReadsItsShare) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    save({.stage = 0, .ranks = 2}, dtype);
    for (const bool weights_alone : {true, false}) {
      const auto bytes = data_bytes("model") + (weights_alone ? 0 : data_bytes("optimizer"));
      const auto headers = load({}, dtype, weights_alone) - bytes;
      EXPECT_LT(headers, 32'000U);
      for (const int ranks : {2, 4}) {
        for (const int stage : {0, 1, 2, 3}) {
          const auto share = load({stage, ranks}, dtype, weights_alone) - headers;
          const auto even = bytes / static_cast<uint64_t>(ranks);
          EXPECT_GE(share, even);
          EXPECT_LE(static_cast<double>(share), 1.03 * static_cast<double>(even))
              << "stage " << stage << ", " << ranks << " ranks";
        }
      }
    }
  }
}

// Adapters, and what trains beside them; the base is read from where it is. Nothing is rounded on
// the way to the files, nor on the way back.
TEST_F(RunStateTest, AnAdapterIsSavedWithoutItsBase) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    save({}, dtype);
    const auto base = folder_ / "base";
    fs::remove_all(base);
    fs::rename(folder_ / "checkpoint-7", base);
    const auto is_loaded = [&](Parts& run) {
      for (const auto& slice : run.all_kept()) {
        EXPECT_TRUE(at::equal(slice.data, trained_values(slice))) << slice.name;
      }
    };
    for (const int saved : {0, 2, 3}) {
      MemoryStore store;
      comm::run_ranks(1 + saved, [&](comm::Group& group) {
        const c10::NoGradGuard no_grad;
        Parts run({saved}, dtype, group, adapters());
        run.state.policy().load_weights(base, /*seed=*/1);
        for (auto& slice : run.all_kept()) {
          const auto* parameter = run.model->table().find(slice.name);
          if (!parameter || parameter->trainable) slice.data.copy_(trained_values(slice));
        }
        is_loaded(run);
        checkpoint::CheckpointStore saver(
            {.output = folder_, .rank = group.rank(), .size = group.size(), .token = "t"}, store);
        saver.save(7, run.state.contents(7));
        EXPECT_TRUE(saver.finish());
      });
      const checkpoint::Reader reader(folder_ / "checkpoint-7", checkpoint::kAdapterStem);
      EXPECT_EQ(reader.files().tensors.size(), 2 * 2 + 2 + 2U);
      std::vector<tensor::TensorSlice> stored_slices;
      for (const auto& [name, stored] : reader.files().tensors) {
        EXPECT_TRUE(name.starts_with("base_model.model.transformer.")) << name;
        EXPECT_EQ(stored.tensor->dtype, DType::kF32) << name;
        const auto& shape = stored.tensor->shape;
        tensor::TensorSlice slice{.name = name, .shape = {shape.begin(), shape.end()}};
        slice.end = static_cast<int64_t>(*checkpoint::element_count(shape));
        slice.data = at::empty({slice.end});
        stored_slices.push_back(slice);
      }
      reader.load(stored_slices, {.foreign = false});
      for (auto& slice : stored_slices) {
        slice.name = slice.name.substr(std::string_view(adapter::kNamePrefix).size());
        EXPECT_TRUE(at::equal(slice.data, values(slice))) << slice.name;
      }
      EXPECT_FALSE(fs::exists(folder_ / "checkpoint-7/config.json"));
      for (const int stage : {0, 1, 2, 3}) {
        comm::run_ranks(2, [&](comm::Group& group) {
          const c10::NoGradGuard no_grad;
          Parts run({stage}, dtype, group, adapters());
          run.state.policy().load_weights(base, /*seed=*/1);
          EXPECT_EQ(run.state.restore(folder_ / "checkpoint-7"), 7);
          is_loaded(run);
          for (auto& slice : run.all_kept()) {
            if (slice.name.find("ln_f") != std::string::npos) slice.data.add_(1);
          }
          run.state.restore_weights(folder_ / "checkpoint-7");
          for (const auto& slice : run.all_kept()) {
            if (slice.name.find(".exp_avg") != std::string::npos) continue;
            EXPECT_TRUE(at::equal(slice.data, trained_values(slice))) << slice.name;
          }
        });
      }
    }
  }
}

// A run in 16 bits begins with the values of an fp32 file, not with their roundings.
TEST_F(RunStateTest, MastersTakeAnFp32FileAsItIs) {
  save({}, at::kFloat);
  for (const int stage : {0, 1, 3}) {
    comm::run_ranks(2, [&](comm::Group& group) {
      const c10::NoGradGuard no_grad;
      Parts run({stage}, at::kBFloat16, group);
      run.state.policy().load_weights(folder_ / "checkpoint-7", /*seed=*/1);
      for (const auto& slice : run.sharded.kept_slices(Access::kRead)) {
        EXPECT_TRUE(at::equal(slice.data, values(slice))) << slice.name;
      }
      int masters = 0;
      for (auto slice : run.sharded.kept_slices(run.optimizer.states())) {
        if (!slice.name.ends_with(".master")) continue;
        ++masters;
        slice.name.resize(slice.name.size() - std::string_view(".master").size());
        EXPECT_TRUE(at::equal(slice.data, values(slice))) << slice.name << " at stage " << stage;
      }
      EXPECT_GT(masters, 0);
    });
  }
}

// Of a weight beyond float16's range the file has an infinity, and the master the value.
TEST_F(RunStateTest, SixteenBitsOfAnotherKindAreRoundedFromTheMasters) {
  save({0, 2}, at::kHalf);  // some values are beyond 65,504, and many are no bfloat16
  for (const auto& holding : all_holdings()) {
    comm::run_ranks(holding.ranks, [&](comm::Group& group) {
      const c10::NoGradGuard no_grad;
      Parts run(holding, at::kBFloat16, group);
      run.state.restore(folder_ / "checkpoint-7");
      for (const auto& slice : run.sharded.kept_slices(Access::kRead)) {
        auto master = slice;
        master.name += ".master";
        master.dtype = at::kFloat;
        EXPECT_TRUE(at::equal(slice.data, values(master).to(at::kBFloat16)))
            << slice.name << " at " << holding.text();
      }
    });
  }
}

// By name, and not as infinities.
TEST_F(RunStateTest, ValuesThatFloat16CannotHoldAreRefused) {
  save({}, at::kFloat);
  const auto message = refusal<UserError>([&] {
    comm::run_ranks(1, [&](comm::Group& group) {
      Parts run({}, at::kHalf, group);
      run.state.policy().load_weights(folder_ / "checkpoint-7", /*seed=*/1);
    });
  });
  EXPECT_PRED2(contains, message, "'transformer.wte.weight' holds values beyond 65,504");
}

}  // namespace
}  // namespace skein::train
