// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/fit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "skein/core/testing.h"
#include "skein/plan/run_model.h"

namespace skein::plan {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A Llama of about `layers` x 63M parameters: 14 are 0.9B, 20 are 1.3B, 160 are 10B.
class FitTest : public TemporaryFolder {
 protected:
  FitTest() {
    config().data.block_size = 1024;
    config().batch.per_device_train_batch_size = 8;
    set_layers(14);
  }

  void set_layers(int layers) {
    write("model/config.json",
          fmt::format(R"({{"model_type": "llama", "vocab_size": 256, "hidden_size": 2048,
                           "num_hidden_layers": {}, "num_attention_heads": 16,
                           "intermediate_size": 7552, "max_position_embeddings": 1024}})",
                      layers));
    config().model.model_name_or_path = (folder_ / "model").string();
  }

  config::RunConfig& config() { return resolved_.config; }

  static Machine gpus(int ranks, uint64_t gib) {
    return {.ranks = ranks,
            .local_ranks = ranks,
            .place = {config::Device::kCuda, true},
            .memory = {.host = 1, .gpu = gib * kGiB}};
  }
  static Machine cpus(int ranks, uint64_t gib) {
    return {.ranks = ranks, .local_ranks = ranks, .memory = {.host = gib * kGiB}};
  }

  RunMemory memory(const Machine& machine) {
    return {config(), read_run_model(config()), machine, config().data.block_size};
  }
  Choice asked(const Machine& machine) {
    return asked_choice(config(), config::plan_batches(resolved_, machine.ranks));
  }

  // What auto becomes, and why.
  std::vector<std::string> settle(const Machine& machine) {
    settled_ = resolved_;
    return settle_autos(settled_, machine);
  }
  config::Strategy strategy(const Machine& machine) {
    settle(machine);
    return settled_.config.parallel.distributed_strategy;
  }
  std::string advice(const Machine& machine) {
    return smallest_change(memory(machine), asked(machine));
  }

  config::Resolved resolved_, settled_;
};

TEST_F(FitTest, ComponentsAddUpToWhatIsCompared) {
  const auto machine = gpus(4, 40);
  auto choice = asked(machine);
  const auto bytes = memory(machine).needs(choice);
  const auto numel = memory(machine).shapes().numel();
  EXPECT_NEAR(static_cast<double>(bytes.flat.weights), 2.0 * static_cast<double>(numel), 1e5);
  EXPECT_NEAR(static_cast<double>(bytes.flat.states), 12.0 * static_cast<double>(numel), 1e6);
  EXPECT_GT(bytes.activations.kept, 0);
  EXPECT_GT(bytes.margin, int64_t{1} << 30);
  EXPECT_EQ(bytes.needed(), bytes.peak + bytes.margin);
  choice.stage = 3;
  EXPECT_LT(memory(machine).needs(choice).needed(), bytes.needed());
}

TEST_F(FitTest, ARankIsComparedWithItsGpuAndRanksOnCpusWithTheMachine) {
  const auto needed = memory(gpus(2, 1)).needs(asked(gpus(2, 1))).needed();
  const auto gib = static_cast<uint64_t>(needed) / kGiB;
  EXPECT_FALSE(memory(gpus(2, gib)).fits(asked(gpus(2, gib))));
  EXPECT_TRUE(memory(gpus(2, gib + 1)).fits(asked(gpus(2, 1))));
  EXPECT_TRUE(memory(gpus(2, 0)).fits(asked(gpus(2, 1))));  // nobody knows
  const auto on_cpu = static_cast<uint64_t>(memory(cpus(2, 1)).needs(asked(cpus(2, 1))).needed());
  EXPECT_FALSE(memory(cpus(2, 2 * on_cpu / kGiB)).fits(asked(cpus(2, 1))));
  EXPECT_TRUE(memory(cpus(2, 2 * on_cpu / kGiB + 1)).fits(asked(cpus(2, 1))));
}

TEST_F(FitTest, WhereAllFitTheNumberOfParametersChooses) {
  const auto machine = gpus(8, 1000);
  EXPECT_EQ(strategy(machine), config::Strategy::kDdp);
  set_layers(20);
  EXPECT_EQ(strategy(machine), config::Strategy::kZero2);
  set_layers(160);
  EXPECT_EQ(strategy(machine), config::Strategy::kZero3);
  EXPECT_EQ(strategy(gpus(1, 1000)), config::Strategy::kDdp);
  config().finetune.finetuning_type = config::FinetuningType::kLora;  // few train
  EXPECT_EQ(strategy(machine), config::Strategy::kDdp);
}

TEST_F(FitTest, TheFirstThatFitsIsTakenOtherwise) {
  // Without accumulation zero2 saves nothing: gradients come into being as activations go.
  config().batch.gradient_accumulation_steps = 2;
  const auto needed = [&](int stage) {
    auto choice = asked(gpus(8, 1));
    choice.stage = stage;
    return static_cast<uint64_t>(memory(gpus(8, 1)).needs(choice).needed()) / kGiB;
  };
  for (const int stage : {1, 2, 3}) ASSERT_LT(needed(stage), needed(stage - 1)) << stage;
  EXPECT_EQ(strategy(gpus(8, needed(0) + 1)), config::Strategy::kDdp);
  EXPECT_EQ(strategy(gpus(8, needed(1) + 1)), config::Strategy::kZero1);
  EXPECT_EQ(strategy(gpus(8, needed(2) + 1)), config::Strategy::kZero2);
  EXPECT_EQ(strategy(gpus(8, needed(3) + 1)), config::Strategy::kZero3);
  EXPECT_EQ(strategy(gpus(8, 1)), config::Strategy::kZero3);  // least, though too much
}

// Without accumulation stage 1 has gradients only while activations go.
TEST_F(FitTest, AHigherStageNeedNotNeedLess) {
  set_layers(20);
  const auto needed = [&](int ranks, int stage) {
    auto choice = asked(gpus(ranks, 1));
    choice.stage = stage;
    return static_cast<uint64_t>(memory(gpus(ranks, 1)).needs(choice).needed());
  };
  ASSERT_LT(needed(2, 1), needed(2, 2));
  ASSERT_LT(needed(2, 1), needed(2, 3));
  auto machine = gpus(2, 1);
  machine.memory.gpu = needed(2, 1);
  EXPECT_EQ(strategy(machine), config::Strategy::kZero1);
  const auto reason = settle(gpus(2, 1)).at(0);
  EXPECT_PRED2(contains, reason, "is zero1, which needs least; yet a rank needs");
}

TEST_F(FitTest, RanksOnCpusAreDecidedByTheHostsMemory) {
  EXPECT_EQ(strategy(cpus(4, 1000)), config::Strategy::kDdp);
  auto choice = asked(cpus(4, 1));
  const auto needed = [&] { return memory(cpus(4, 1)).needs(choice).needed() * 4; };
  choice.stage = 1;
  const auto gib = static_cast<uint64_t>(needed()) / kGiB + 1;
  choice.stage = 0;
  ASSERT_GT(static_cast<uint64_t>(needed()), gib * kGiB);
  EXPECT_EQ(strategy(cpus(4, gib)), config::Strategy::kZero1);
}

TEST_F(FitTest, SaysWhy) {
  EXPECT_PRED2(contains, settle(gpus(8, 80)).at(0), "distributed_strategy: auto is ddp: 885,");
  EXPECT_PRED2(contains, settle(gpus(8, 80)).at(0), "parameters train (below 1B: ddp), a rank");
  EXPECT_PRED2(contains, settle(gpus(1, 80)).at(0), "is ddp: one rank has nothing to divide");
  EXPECT_PRED2(contains, settle(gpus(8, 2)).at(0), "is zero3, which needs least; yet a rank needs");
  // One rank that nothing fits on is told so, with what to type.
  EXPECT_PRED2(contains, settle(gpus(1, 2)).at(0), "is ddp, which needs least; yet a rank needs");
  EXPECT_PRED2(contains, settle(gpus(1, 2)).at(0), "finetuning_type=lora");
  config().checkpoint.save_on_each_node = true;
  EXPECT_PRED2(contains, settle(gpus(8, 80)).at(0), "is ddp: save_on_each_node needs all state");
  EXPECT_PRED2(contains, settle(gpus(8, 2)).at(0), "is ddp, which needs least; yet a rank needs");
}

// A choice with offload is compared with the same stage without.
TEST_F(FitTest, SaysWhatOffloadHasSaved) {
  set_layers(20);
  config().batch.gradient_accumulation_steps = 8;
  auto choice = asked(gpus(2, 1));
  choice.stage = 3;
  auto machine = gpus(2, 1);
  machine.memory = {.host = 400 * kGiB,
                    .gpu = static_cast<uint64_t>(memory(machine).needs(choice).needed()) - kGiB};
  const auto reason = settle(machine).at(0);
  EXPECT_PRED2(contains, reason, "is zero3 with offload_optimizer=cpu");
  EXPECT_PRED2(contains, reason, "; zero3 would need");
}

TEST_F(FitTest, WhatIsGivenStays) {
  config().parallel.distributed_strategy = config::Strategy::kZero1;
  EXPECT_TRUE(settle(gpus(8, 1)).empty());
  EXPECT_EQ(settled_.config, config());
}

TEST_F(FitTest, TheLargestMicroBatchThatFitsKeepsTheGlobalBatch) {
  config().batch = {.gradient_accumulation_steps = 3, .global_batch_size = 8 * 24};
  config().batch.auto_find_batch_size = true;
  config().parallel.distributed_strategy = config::Strategy::kDdp;
  int64_t before = 0;
  for (const uint64_t gib : {1, 10, 11, 12, 13, 14, 16, 24, 40, 80, 1000}) {
    const auto machine = gpus(8, gib);
    const auto reasons = settle(machine);
    ASSERT_EQ(reasons.size(), 1U);
    const auto plan = config::plan_batches(settled_, 8);
    EXPECT_EQ(plan.global, 8 * 24) << gib;
    EXPECT_GE(plan.per_device, before);
    before = plan.per_device;
    EXPECT_FALSE(settled_.config.batch.auto_find_batch_size);
    auto choice = asked_choice(settled_.config, plan);
    EXPECT_TRUE(plan.per_device == 1 || memory(machine).fits(choice)) << gib;
    for (int64_t larger = plan.per_device + 1; larger <= 24; ++larger) {
      if (24 % larger != 0) continue;
      choice.per_device = larger;
      choice.accumulation = 24 / larger;
      EXPECT_FALSE(memory(machine).fits(choice)) << gib << " " << larger;
    }
  }
  EXPECT_EQ(before, 24);
}

TEST_F(FitTest, AGivenMicroBatchIsTheLargestToTry) {
  config().batch = {.per_device_train_batch_size = 4, .gradient_accumulation_steps = 6};
  config().batch.auto_find_batch_size = true;
  EXPECT_PRED2(contains, settle(gpus(8, 1000)).back(), "it fits, and nothing larger was asked for");
  EXPECT_EQ(settled_.config.batch.per_device_train_batch_size, 4);
  EXPECT_EQ(settled_.config.batch.gradient_accumulation_steps, 6);
  settle(gpus(8, 1));
  EXPECT_EQ(settled_.config.batch.per_device_train_batch_size, 1);
  EXPECT_EQ(settled_.config.batch.gradient_accumulation_steps, 24);
}

TEST_F(FitTest, AllRowsAtOnceIsNotTheEnd) {
  config().batch = {};
  config().batch.auto_find_batch_size = true;
  EXPECT_PRED2(contains, settle(gpus(8, 1000)).back(),
               "8 x 1 accumulation, the same 8 rows of a rank: all at once fits; give a larger "
               "global_batch_size for more");
}

TEST_F(FitTest, OneChangeAtATimeMakesARunFit) {
  config().parallel.distributed_strategy = config::Strategy::kDdp;
  const auto machine = gpus(8, 1);
  config().data.block_size = 8192;
  const auto gib_of = [&](const Choice& choice) {
    return static_cast<uint64_t>(memory(machine).needs(choice).needed()) / kGiB + 1;
  };
  auto choice = asked(machine);
  choice.per_device = 4;
  choice.accumulation = 2;
  // Gradients of several micro-batches are fp32 and stay: here the smaller micro-batch still pays.
  ASSERT_LT(gib_of(choice), gib_of(asked(machine)));
  EXPECT_EQ(advice(gpus(8, gib_of(choice))),
            "per_device_train_batch_size=4 gradient_accumulation_steps=2 makes it fit");
  config().batch.per_device_train_batch_size = 1;  // nothing smaller
  choice = asked(machine);
  choice.recompute = true;
  config().data.block_size = 32768;
  EXPECT_EQ(advice(gpus(8, gib_of(choice))), "gradient_checkpointing=true makes it fit");
  config().model.gradient_checkpointing = true;
  choice.stage = 1;
  EXPECT_EQ(advice(gpus(8, gib_of(choice))), "distributed_strategy=zero1 makes it fit");
}

// Where no stage fits, states leave the GPU, as few as need be; at last the shards too.
TEST_F(FitTest, OffloadIsTheLastOfTheStrategies) {
  set_layers(20);
  const auto machine = [](uint64_t gib, uint64_t host) {
    auto one = gpus(1, gib);
    one.memory.host = host * kGiB;
    return one;
  };
  const auto offload = [&](const Machine& one) {
    settle(one);
    return offload_of(settled_.config.offload);
  };
  EXPECT_FALSE(offload(machine(80, 400)).any());
  const auto some = offload(machine(24, 400)), all = offload(machine(12, 400));
  EXPECT_EQ(some.states, Medium::kPinnedHost);
  EXPECT_GT(some.ratio, 0);
  EXPECT_LT(some.ratio, 1);
  EXPECT_GT(all.ratio, some.ratio);
  EXPECT_PRED2(contains, settle(machine(24, 400)).at(0), "is ddp with offload_optimizer=cpu");
  EXPECT_PRED2(contains, settle(machine(24, 400)).at(0), "would need");
  // The host's memory counts too.
  EXPECT_FALSE(offload(machine(24, 4)).any());
  auto choice = asked(machine(24, 4));
  choice.offload = {.states = Medium::kPinnedHost};
  const auto bytes = memory(machine(24, 4)).needs(choice);
  EXPECT_FALSE(memory(machine(24, 4)).fits(bytes));
  EXPECT_PRED2(contains, memory(machine(24, 4)).comparison(bytes), "what this machine's ranks");
  config().model.gradient_checkpointing = true;
  EXPECT_PRED2(contains, advice(machine(12, 400)), "offload_optimizer=cpu offload_ratio=");
}

TEST_F(FitTest, RoomForWhatIsOffloadedIsLookedForBeforeRanksStart) {
  set_layers(20);
  auto machine = gpus(2, 80);
  machine.memory.host = 8 * kGiB;
  const auto why = [&] {
    return refusal<UserError>([&] { check_offload_room(resolved_, machine); });
  };
  EXPECT_EQ(why(), "");
  config().offload.offload_optimizer = config::Offload::kCpu;
  EXPECT_PRED2(contains, why(), "what this machine's ranks offload needs about");
  EXPECT_PRED2(contains, why(), "and it has 8");
  machine.memory.host = 400 * kGiB;
  EXPECT_EQ(why(), "");
  // States on a disk take no memory but their windows.
  machine.memory.host = 16 * kGiB;
  config().offload = {.offload_optimizer = config::Offload::kNvme, .nvme_path = folder_.string()};
  EXPECT_EQ(why(), "");
  set_layers(10'000);  // 12 bytes for each of 6e11 parameters, on each of two ranks
  machine.memory.host = uint64_t{1} << 60;
  const auto disk = refusal<IoError>([&] { check_offload_room(resolved_, machine); });
  EXPECT_PRED2(contains, disk, "the disk of nvme_path is too small");
  EXPECT_PRED2(contains, disk, folder_.string());
}

// Where the host is too small, less of it goes there, or it goes to a disk, before all is lost.
TEST_F(FitTest, AHostThatIsTooSmallIsAskedForLess) {
  set_layers(20);
  config().model.gradient_checkpointing = true;
  config().batch.per_device_train_batch_size = 1;
  config().offload.offload_optimizer = config::Offload::kCpu;
  const auto machine = [](uint64_t gib, uint64_t host) {
    auto one = gpus(1, gib);
    one.memory.host = host * kGiB;
    return one;
  };
  EXPECT_EQ(advice(machine(80, 4)), "offload_optimizer=none makes it fit");
  EXPECT_PRED2(contains, advice(machine(14, 14)), "offload_ratio=0.");
  EXPECT_EQ(advice(machine(14, 6)), "offload_optimizer=nvme nvme_path=FOLDER makes it fit");
  config().parallel.distributed_strategy = config::Strategy::kZero3;
  config().offload.offload_param = config::Offload::kCpu;
  EXPECT_EQ(advice(machine(80, 4)), "offload_optimizer=none offload_param=none makes it fit");
  auto noted = machine(80, 4);
  noted.host_note = " (this one's)";
  EXPECT_PRED2(contains, memory(noted).comparison(memory(noted).needs(asked(noted))),
               "and it has 4.0 GiB (this one's)");
  noted.memory.gpu = kGiB;
  EXPECT_PRED2(contains, advice(noted), "; offload has 4.0 GiB of host memory (this one's)");
}

TEST_F(FitTest, WhatIsAskedOfOffloadStays) {
  set_layers(20);
  config().offload = {.offload_optimizer = config::Offload::kCpu, .offload_ratio = 0.25};
  auto machine = gpus(2, 12);
  machine.memory.host = 400 * kGiB;
  settle(machine);
  EXPECT_EQ(settled_.config.offload, config().offload);
}

// Fewer bytes for each parameter, where the same bytes in other places do not do.
TEST_F(FitTest, NarrowerStatesAndWeightsAreNamedWhereTheyHelp) {
  config().parallel.distributed_strategy = config::Strategy::kDdp;
  config().model.gradient_checkpointing = true;
  config().batch.per_device_train_batch_size = 1;
  const auto gib_with = [&](const std::function<void(config::RunConfig&)>& change) {
    auto other = config();
    change(other);
    const auto one = memory(gpus(1, 1)).with(other);
    return static_cast<uint64_t>(one.needs(asked(gpus(1, 1))).needed()) / kGiB + 1;
  };
  const auto in_8bit =
      gib_with([](auto& other) { other.optimizer.optim = config::OptimizerKind::kAdamW8bit; });
  EXPECT_PRED2(contains, advice(gpus(1, in_8bit)), "optim=adamw_8bit would make it fit");
  const auto pure = gib_with([](auto& other) { other.optimizer.pure_bf16 = true; });
  ASSERT_LT(pure, in_8bit);
  EXPECT_PRED2(contains, advice(gpus(1, pure)), "pure_bf16=true would make it fit");
  auto old = gpus(1, pure);
  old.place.has_bfloat16 = false;  // trains in float16
  EXPECT_FALSE(contains(advice(old), "pure_bf16"));
  config().finetune.finetuning_type = config::FinetuningType::kLora;
  const auto packed =
      gib_with([](auto& other) { other.model.quantization_bit = config::QuantizationBit::kFour; });
  config().batch.per_device_train_batch_size = 4;
  config().batch.gradient_accumulation_steps = 1;
  EXPECT_PRED2(contains, advice(gpus(1, packed)), "quantization_bit=4 ");
}

TEST_F(FitTest, ChangesTogetherAndWhatElseWouldHelp) {
  config().parallel.distributed_strategy = config::Strategy::kDdp;
  config().data.block_size = 8192;
  const auto machine = gpus(8, 1);
  const Choice choice{.stage = 1, .per_device = 1, .accumulation = 8, .recompute = true};
  const auto gib = static_cast<uint64_t>(memory(machine).needs(choice).needed()) / kGiB + 1;
  EXPECT_EQ(advice(gpus(8, gib)),
            "per_device_train_batch_size=1 gradient_accumulation_steps=8 "
            "gradient_checkpointing=true distributed_strategy=zero1 make it fit");
  EXPECT_PRED2(contains, advice(machine), "makes it fit: finetuning_type=lora, which trains");
  config().finetune.finetuning_type = config::FinetuningType::kLora;
  EXPECT_FALSE(contains(advice(machine), "lora"));
  EXPECT_PRED2(contains, advice(machine), "makes it fit: quantization_bit=4, which holds frozen");
  config().model.quantization_bit = config::QuantizationBit::kFour;
  EXPECT_FALSE(contains(advice(machine), "quantization_bit"));
}

}  // namespace
}  // namespace skein::plan
