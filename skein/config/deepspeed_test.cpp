// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/deepspeed.h"

#include "skein/config/test_support.h"

namespace skein::config {
namespace {

constexpr const char* kPlain = R"({
  "zero_optimization": {
    "stage": 2,
    "allgather_partitions": true,
    "allgather_bucket_size": 2e8,
    "overlap_comm": true,
    "reduce_bucket_size": "auto",
    "contiguous_gradients": true
  },
  "bf16": {"enabled": true},
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": 3e-5, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}
  },
  "gradient_accumulation_steps": 8,
  "gradient_clipping": 0.5,
  "steps_per_print": 10,
  "train_batch_size": 32,
  "train_micro_batch_size_per_gpu": 4,
  "wall_clock_breakdown": false
})";

class DeepSpeedTest : public ConfigTest {
 protected:
  // `json` as ds.json, named by a one-line YAML, and more YAML after it.
  Resolved with_json(const std::string& json, const std::string& yaml = "",
                     const std::vector<std::string>& words = {}) const {
    write("ds.json", json);
    return load_yaml("deepspeed: ds.json\n" + yaml, words);
  }
  std::string error_with_json(const std::string& json, const std::string& yaml = "") const {
    write("ds.json", json);
    return error_of("deepspeed: ds.json\n" + yaml);
  }
};

TEST_F(DeepSpeedTest, HonouredKeysReachTheConfiguration) {
  const auto resolved = with_json(kPlain);
  const auto& config = resolved.config;
  EXPECT_EQ(config.parallel.distributed_strategy, Strategy::kZero2);
  EXPECT_EQ(config.model.dtype, DType::kBF16);
  EXPECT_EQ(config.optimizer.learning_rate, 3e-5);
  EXPECT_EQ(config.optimizer.adam_beta1, 0.8);
  EXPECT_EQ(config.optimizer.adam_beta2, 0.999);
  EXPECT_EQ(config.optimizer.weight_decay, 3e-7);
  EXPECT_EQ(config.optimizer.max_grad_norm, 0.5);
  EXPECT_EQ(config.batch.global_batch_size, 32);
  EXPECT_EQ(config.batch.per_device_train_batch_size, 4);
  EXPECT_EQ(config.batch.gradient_accumulation_steps, 8);
  EXPECT_EQ(without_folder(resolved.origin_of("learning_rate").text()),
            "ds.json:13:16 (optimizer.params.lr)");
}

TEST_F(DeepSpeedTest, EveryKeyIsReported) {
  const auto notes = notes_of(with_json(kPlain));
  for (const auto* line : {
           "ds.json:3:5: DeepSpeed zero_optimization.stage = 2: honoured (distributed_strategy: "
           "zero2)",
           "zero_optimization.overlap_comm = true: emulated (",
           "zero_optimization.reduce_bucket_size = auto: auto (",
           "zero_optimization.allgather_bucket_size = 2e8: no effect (",
           "steps_per_print = 10: no effect (use logging_steps in the YAML)",
           "optimizer.type = AdamW: honoured (",
       }) {
    EXPECT_PRED2(contains, notes, line);
  }
}

TEST_F(DeepSpeedTest, WhatIsSwitchedOffInVainIsNotEmulated) {
  const auto notes =
      notes_of(with_json(R"({"zero_optimization": {"stage": 2, "overlap_comm": false}})"));
  EXPECT_PRED2(contains, notes, "overlap_comm = false: no effect (");
}

TEST_F(DeepSpeedTest, AutoTakesTheYamlOrTheDefault) {
  const auto resolved = with_json(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
          "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
          "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
          "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}})",
      "lr: 2e-4\n");
  auto expected = RunConfig();
  expected.optimizer.learning_rate = 2e-4;
  EXPECT_EQ(resolved.config, expected);
}

TEST_F(DeepSpeedTest, RefusesWithThePlace) {
  struct Case {
    const char* json;
    const char* message;
  };
  const Case cases[] = {
      {R"({"fp16": {"enabled": true}})",
       "ds.json:1:11: DeepSpeed key 'fp16.enabled' is known, but"},
      {R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})",
       "offload_param.device' is known"},
      {R"({"zero_optimization": {"cpu_offload": true}})", "is known"},
      {R"({"zero_optimization": {"stage": 4}})", "must be 0, 1, 2 or 3, not '4'"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}})",
       "ds.json:1:16: DeepSpeed key 'scheduler.type' is known, but this version does not support "
       "it"},
      {R"({"optimizer": {"type": "Lamb"}})", "DeepSpeed optimizer 'Lamb' is known"},
      {R"({"optimizer": {"params": {"adam_w_mode": false}}})", "is known"},
      {R"({"optimizer": {"params": {"betas": [0.9]}}})", "must be a list of two numbers"},
      {R"({"optimizer": {"params": {"lr": "fast"}}})",
       "'learning_rate' must be a number, not 'fast'"},
      {R"({"train_batchsize": 3})",
       "ds.json:1:2: unknown DeepSpeed key 'train_batchsize'; did you mean 'train_batch_size'?"},
      {R"({"zero_optimization": {"staeg": 1}})", "unknown DeepSpeed key 'zero_optimization.staeg'"},
      {R"({"train_batch_size": 3, "train_batch_size": 4})", "duplicate key 'train_batch_size'"},
      {"{\n  \"train_batch_size\": 3,\n}", "ds.json:3:1: not well-formed JSON"},
      {R"({"train_batch_size": -3})", "'global_batch_size' must be at least 1"},
      {R"({"autotuning": {"enabled": true}})", "is known"},
  };
  for (const auto& c : cases) EXPECT_PRED2(contains, error_with_json(c.json), c.message) << c.json;
}

TEST_F(DeepSpeedTest, FeaturesThatAreOffAreAccepted) {
  const auto resolved = with_json(
      R"({"fp16": {"enabled": false, "loss_scale": 0}, "autotuning": {"enabled": false},
          "zero_optimization": {"stage": 0, "zero_hpz_partition_size": 1, "mics_shard_size": -1,
             "offload_optimizer": {"device": "none", "pin_memory": true},
             "gather_16bit_weights_on_model_save": true, "zero_quantized_weights": false}})");
  EXPECT_EQ(resolved.config.parallel.distributed_strategy, Strategy::kDdp);
}

TEST_F(DeepSpeedTest, ExplicitKeysOverrideAndBothOriginsAreShown) {
  const auto resolved = with_json(kPlain, "learning_rate: 1e-4\n", {"max_grad_norm=2"});
  EXPECT_EQ(resolved.config.optimizer.learning_rate, 1e-4);
  EXPECT_EQ(resolved.config.optimizer.max_grad_norm, 2);
  const auto notes = notes_of(resolved);
  EXPECT_PRED2(contains, notes,
               "learning_rate: 0.0001 (run.yaml:2:1) overrides 3e-05 (ds.json:13:16 "
               "(optimizer.params.lr))");
  EXPECT_PRED2(contains, notes, "max_grad_norm: 2 (command line) overrides 0.5 (ds.json:16:3");
}

TEST_F(DeepSpeedTest, StrictConflictsListEveryMismatch) {
  const auto error = error_with_json(
      kPlain,
      "deepspeed_conflict: error\nlearning_rate: 1e-4\nmax_grad_norm: 2\nadam_beta1: 0.8\n");
  EXPECT_PRED2(contains, error, "learning_rate: 0.0001 (run.yaml:3:1) overrides");
  EXPECT_PRED2(contains, error, "max_grad_norm: 2");
  EXPECT_FALSE(contains(error, "adam_beta1")) << "equal values do not conflict";
}

TEST_F(DeepSpeedTest, WhereTheFileIsNamed) {
  write("configs/ds.json", R"({"zero_optimization": {"stage": 1}})");
  const auto strategy = [&](const std::string& yaml, std::vector<std::string> words = {}) {
    return load_yaml(yaml, std::move(words)).config.parallel.distributed_strategy;
  };
  const auto file = (folder_ / "configs/ds.json").string();
  EXPECT_EQ(strategy("training:\n  deepspeed:\n    config_path: configs/ds.json\n"),
            Strategy::kZero1);
  EXPECT_EQ(strategy("deepspeed: {zero_optimization: {stage: 3}}\n"), Strategy::kZero3);
  EXPECT_EQ(strategy("", {"--deepspeed_config", file}), Strategy::kZero1);
  EXPECT_EQ(strategy("", {"--deepspeed", "--deepspeed_config", file}), Strategy::kZero1);
  EXPECT_EQ(strategy("deepspeed: {zero_optimization: {stage: 3}}\n", {"deepspeed=none"}),
            Strategy::kAuto);
  EXPECT_EQ(strategy("distributed_strategy: deepspeed\ndeepspeed: configs/ds.json\n"),
            Strategy::kZero1);
  EXPECT_EQ(strategy("distributed_strategy: auto\ndeepspeed: configs/ds.json\n"), Strategy::kZero1);
  EXPECT_EQ(strategy("distributed_strategy: zero2\ndeepspeed: configs/ds.json\n"),
            Strategy::kZero2);
  EXPECT_PRED2(contains, error_of("deepspeed: none.json\n"),
               "run.yaml:1:12: DeepSpeed file 'none.json' does not exist");
  EXPECT_PRED2(contains, error_of("deepspeed: {config_path: a.json, stage: 1}\n"), "not both");
}

}  // namespace
}  // namespace skein::config
