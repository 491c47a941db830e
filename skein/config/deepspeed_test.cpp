// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/deepspeed.h"

#include <map>

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
           "steps_per_print = 10: honoured (logging_steps: 10)",
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
  expected.loss_scale.loss_scaler = LossScaleRule::kDeepSpeed;  // if it becomes float16
  EXPECT_EQ(resolved.config, expected);
}

TEST_F(DeepSpeedTest, RefusesWithThePlace) {
  struct Case {
    const char* json;
    const char* message;
  };
  const Case cases[] = {
      {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})",
       "ds.json:1:22: 'fp16.enabled' and 'bf16.enabled' (ds.json:1:38) are both true: keep one"},
      {R"({"fp16": {"enabled": true, "hysteresis": 0}})", "'fp16.hysteresis' must be at least 1"},
      {R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})",
       "'zero_optimization.offload_param.device: cpu' is for stage 3, but "
       "'zero_optimization.stage' is 2: remove it, or set the stage to 3"},
      {R"({"zero_optimization": {"cpu_offload": true}})",
       "'zero_optimization.cpu_offload: true' is for stages from 1, but"},
      {R"({"zero_optimization": {"stage": 1, "stage3_max_live_parameters": 1e9}})",
       "'zero_optimization.stage3_max_live_parameters: 1e9' is for stage 3"},
      {R"({"zero_optimization": {"stage": 1, "max_live_parameters": 1e9}})",
       "'zero_optimization.max_live_parameters: 1e9' is for stage 3"},
      {R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"ratio": 1.5}}})",
       "must be from 0 to 1, not '1.5'"},
      {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"ratio": 0.5}}})",
       "'zero_optimization.offload_optimizer.ratio: 0.5' is for stage 3"},
      {R"({"zero_optimization": {"stage": 4}})", "must be 0, 1, 2 or 3, not '4'"},
      {R"({"scheduler": {"type": "WarmupRL"}})",
       "ds.json:1:24: 'scheduler.type' must be one of WarmupLR, WarmupDecayLR, WarmupCosineLR, "
       "OneCycle, LRRangeTest, not 'WarmupRL'; did you mean 'WarmupLR'?"},
      {R"({"scheduler": {"params": {"warmup_num_steps": 5}}})", "the 'scheduler' has no 'type'"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 5}}})",
       "'scheduler.params.total_num_steps' is not a parameter of WarmupLR, which has "
       "warmup_min_lr,"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0.5}}})",
       "'scheduler.params.warmup_num_steps' must be a whole number, not '0.5'"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}}})",
       "'warmup_type' of warmuplr must be linear or log, not 'cosine'"},
      {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_max_lr": 1}}})",
       "OneCycle needs 'cycle_min_lr'"},
      {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1}}})",
       "add \"cycle_momentum\": false"},
      {R"({"optimizer": {"type": "Lamb"}})", "DeepSpeed optimizer 'Lamb' is known"},
      {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})",
       "ds.json:1:58: 'optimizer.params.adam_w_mode: false' with type Adam adds weight_decay"},
      {R"({"optimizer": {"params": {"betas": [0.9]}}})", "must be a list of two numbers"},
      {R"({"optimizer": {"params": {"lr": "fast"}}})",
       "'optimizer.params.lr' must be a number, not 'fast'"},
      {R"({"train_batchsize": 3})",
       "ds.json:1:2: unknown DeepSpeed key 'train_batchsize'; did you mean 'train_batch_size'?"},
      {R"({"zero_optimization": {"staeg": 1}})", "unknown DeepSpeed key 'zero_optimization.staeg'"},
      {R"({"train_batch_size": 3, "train_batch_size": 4})", "duplicate key 'train_batch_size'"},
      {"{\n  \"train_batch_size\": 3,\n}",
       "ds.json:3:1: not well-formed JSON: invalid JSON: a comma before '}'"},
      {"{\n  // ranks\n  \"train_batch_size\": 3\n}",
       "ds.json:2:3: not well-formed JSON: invalid JSON: JSON has no comments"},
      {"{\"train_batch_size\" 3}", "invalid JSON: '3' is not expected"},
      {R"({"train_batch_size": -3})", "'train_batch_size' must be at least 1"},
      {R"({"gradient_clipping": -1})", "ds.json:1:23: 'gradient_clipping' must be at least 0"},
      {R"({"flops_profiler": true})", "'flops_profiler' must be an object, {…}, not 'true'"},
      {R"({"zero_optimization": true})", "'zero_optimization' must be an object, {…}, not 'true'"},
      {"[1]", "ds.json:1:1: expected an object, {\"key\": value}"},
      {"\n", "ds.json:1:1: the file is empty"},
      {R"({"scheduler": {"type": "WarmupLR", "params": {"last_batch_iteration": 3}}})",
       "'scheduler.params.last_batch_iteration' must be -1, not '3'"},
      {R"({"autotuning": {"enabled": true}})", "is known"},
  };
  for (const auto& c : cases) EXPECT_PRED2(contains, error_with_json(c.json), c.message) << c.json;
}

TEST_F(DeepSpeedTest, WhatASchedulerBeginsBehindIsNoted) {
  for (const auto* type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest"}) {
    const auto resolved = with_json(
        std::string(R"({"scheduler": {"params": {"last_batch_iteration": -1}, "type": ")") + type +
        R"("}})");
    EXPECT_PRED2(contains, notes_of(resolved),
                 "last_batch_iteration = -1: no effect (a checkpoint");
  }
}

TEST_F(DeepSpeedTest, RarerLogLinesThanUsualAreTold) {
  EXPECT_PRED2(contains, notes_of(with_json(R"({"steps_per_print": 2000})")),
               "'steps_per_print' makes log lines rarer than the default: one in 2000 updates");
  EXPECT_FALSE(contains(notes_of(with_json(R"({"steps_per_print": 10})")), "rarer"));
}

TEST_F(DeepSpeedTest, FeaturesThatAreOffAreAccepted) {
  const auto resolved = with_json(
      R"({"fp16": {"enabled": false, "loss_scale": 0}, "autotuning": {"enabled": false},
          "zero_optimization": {"stage": 0, "zero_hpz_partition_size": 1, "mics_shard_size": -1,
             "offload_optimizer": {"device": "none", "pin_memory": true},
             "zero_quantized_weights": false}})");
  EXPECT_EQ(resolved.config.parallel.distributed_strategy, Strategy::kDdp);
  const auto off = with_json(
      R"({"scheduler": null, "optimizer": null, "fp16": null, "steps_per_print": 0,
          "flops_profiler": {"enabled": false, "profile_step": 0}})");
  EXPECT_EQ(off.config, RunConfig());
  EXPECT_PRED2(contains, error_with_json(R"({"train_batch_sizes": null})"),
               "unknown DeepSpeed key");
}

TEST_F(DeepSpeedTest, BareNamesOfStage3KeysAreAccepted) {
  const auto resolved = with_json(
      R"({"zero_optimization": {"stage": 3, "gather_16bit_weights_on_model_save": true}})");
  EXPECT_EQ(resolved.config.parallel.distributed_strategy, Strategy::kZero3);
}

// Not bfloat16, which a GPU would take when nothing is said: DeepSpeed computes in float32 then.
TEST_F(DeepSpeedTest, WhatIsOffIsFloat32) {
  const auto dtype = [&](const char* json, const std::string& yaml = "") {
    return with_json(json, yaml).config.model.dtype;
  };
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}})"), DType::kF32);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}, "bf16": null})"), DType::kF32);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": false}})"), DType::kF32);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": true}})"), DType::kBF16);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": "auto"}})"), std::nullopt);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}})", "bf16: true\n"), DType::kBF16);
  EXPECT_EQ(dtype(R"({"train_batch_size": 8})"), std::nullopt);
}

// DeepSpeed takes adam_w_mode of type Adam alone, and decay of 0 is the same either way.
TEST_F(DeepSpeedTest, AdamIsDecoupledWhereDeepSpeedsIs) {
  for (
      const auto* json : {
          R"({"optimizer": {"type": "Adam", "params": {"weight_decay": 0.1}}})",
          R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false, "weight_decay": 1}}})",
          R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})",
          R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0}}})",
      }) {
    EXPECT_EQ(error_with_json(json), "") << json;
  }
}

// Wherever the decay is given.
TEST_F(DeepSpeedTest, CoupledDecayIsRefusedByItsValue) {
  const auto* json = R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})";
  const auto* decayed =
      R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})";
  EXPECT_PRED2(contains, error_with_json(json, "weight_decay: 0.1\n"),
               "'optimizer.params.adam_w_mode: false' with type Adam adds weight_decay "
               "(run.yaml:2:1) to the gradient");
  EXPECT_EQ(error_with_json(decayed, "weight_decay: 0\n"), "");
}

TEST_F(DeepSpeedTest, SchedulersSetTheScheduleAndItsRate) {
  const auto warmup = with_json(
      R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-5}},
          "scheduler": {"type": "WarmupLR", "params":
              {"warmup_min_lr": 1e-6, "warmup_max_lr": 2e-5, "warmup_num_steps": 500}}})");
  EXPECT_EQ(warmup.config.schedule.lr_scheduler_type, Schedule::kWarmupLr);
  EXPECT_EQ(warmup.config.schedule.warmup_steps, 500);
  EXPECT_EQ(warmup.config.schedule.deepspeed.warmup_min_lr, 1e-6);
  EXPECT_EQ(warmup.config.optimizer.learning_rate, 2e-5);
  EXPECT_PRED2(contains, notes_of(warmup),
               "optimizer.params.lr = 3e-5: no effect (the scheduler's warmup_max_lr counts)");

  const auto cycle = with_json(
      R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-3,
              "cycle_first_step_size": 7, "cycle_momentum": false, "cycle_min_mom": 0.8}}})");
  EXPECT_EQ(cycle.config.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(cycle.config.schedule.deepspeed.cycle_first_step_size, 7);

  const auto range = with_json(R"({"scheduler": {"type": "LRRangeTest", "params": {}}})");
  EXPECT_EQ(range.config.optimizer.learning_rate, 1e-3);
}

TEST_F(DeepSpeedTest, AbsentParametersAreThoseOfTheProfile) {
  const auto* json = R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-5}},
                         "scheduler": {"type": "WarmupLR", "params": {}}})";
  const auto newer = with_json(json).config;
  EXPECT_EQ(newer.optimizer.learning_rate, 3e-5);
  EXPECT_EQ(newer.schedule.warmup_steps, 1000);
  EXPECT_EQ(newer.optimizer.max_grad_norm, 1);
  const auto older = with_json(json, "ds_compat: 0.16\n").config;
  EXPECT_EQ(older.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(older.optimizer.max_grad_norm, 0);
  EXPECT_PRED2(contains, notes_of(with_json(json, "ds_compat: 0.16\n")),
               "DeepSpeed gradient_clipping is absent: max_grad_norm: 0 is its default");
  EXPECT_EQ(with_json(R"({"optimizer": {"type": "AdamW"}})").config.optimizer.learning_rate, 1e-3);
  EXPECT_PRED2(contains, error_with_json(json, "ds_compat: 0.15\n"),
               "'ds_compat' must be one of 0.16, 0.19, not '0.15'");
}

TEST_F(DeepSpeedTest, WarmupRatioOfTheYamlReplacesTheFilesSteps) {
  const auto resolved =
      with_json(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 500}}})",
                "warmup_ratio: 0.1\nlearning_rate: 3e-5\n");
  EXPECT_EQ(resolved.config.schedule.warmup_steps, 0);
  EXPECT_EQ(resolved.config.schedule.warmup_ratio, 0.1);
  EXPECT_EQ(resolved.config.optimizer.learning_rate, 3e-5);
}

// Many files spell out this default.
TEST_F(DeepSpeedTest, AWarmupRatioOfZeroLeavesTheFilesSteps) {
  const auto resolved =
      with_json(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 500}}})",
                "warmup_ratio: 0.0\n");
  EXPECT_EQ(resolved.config.schedule.warmup_steps, 500);
}

TEST_F(DeepSpeedTest, Fp16BringsDeepSpeedsScaler) {
  const auto resolved = with_json(
      R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 500,
                   "initial_scale_power": 12, "hysteresis": 3, "min_loss_scale": 2},
          "bf16": {"enabled": false}})");
  EXPECT_EQ(resolved.config.model.dtype, DType::kF16);
  const LossScaleConfig expected{.loss_scaler = LossScaleRule::kDeepSpeed,
                                 .initial_scale_power = 12,
                                 .loss_scale_window = 500,
                                 .hysteresis = 3,
                                 .min_loss_scale = 2};
  EXPECT_EQ(resolved.config.loss_scale, expected);
}

TEST_F(DeepSpeedTest, LoggingAndRecomputeAreHonoured) {
  const auto config = with_json(
                          R"({"steps_per_print": 7, "wandb": {"enabled": true, "project": "p"},
          "tensorboard": {"enabled": true, "output_path": "runs"},
          "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true,
                                       "profile": false}})")
                          .config;
  EXPECT_EQ(config.log.logging_steps, 7);
  EXPECT_EQ(config.log.report_to, (std::vector<std::string>{"tensorboard", "wandb"}));
  EXPECT_TRUE(config.model.gradient_checkpointing);
  EXPECT_TRUE(config.model.offload_activations);
  const auto off = with_json(
      R"({"steps_per_print": null, "wandb": {"enabled": false},
          "activation_checkpointing": {"partition_activations": false, "number_checkpoints": null}})");
  EXPECT_EQ(off.config, RunConfig());
}

TEST_F(DeepSpeedTest, CheckpointsOnTheCpuAreOffloadedUnlessTheYamlHasNone) {
  constexpr const char* kJson = R"({"activation_checkpointing": {"cpu_checkpointing": true}})";
  EXPECT_TRUE(with_json(kJson).config.model.gradient_checkpointing);
  EXPECT_TRUE(with_json(kJson).config.model.offload_activations);
  EXPECT_EQ(with_json(kJson, "gradient_checkpointing: false\n").config, RunConfig());
  const auto kept = with_json(kJson, "offload_activations: false\n").config.model;
  EXPECT_FALSE(kept.offload_activations);
}

TEST_F(DeepSpeedTest, ProfilersAskForATable) {
  const auto steps = [&](const char* json, const std::string& yaml = "") {
    return with_json(json, yaml).config.log.profile_steps;
  };
  constexpr const char* kProfiler =
      R"({"flops_profiler": {"enabled": true, "profile_step": 7, "module_depth": -1},
          "wall_clock_breakdown": true})";
  EXPECT_EQ(steps(kProfiler), "7");
  EXPECT_EQ(steps(kProfiler, "profile_steps: 3-4\n"), "3-4");
  EXPECT_EQ(steps(R"({"flops_profiler": {"enabled": true}})"), "1");
  EXPECT_EQ(steps(R"({"wall_clock_breakdown": true})"), "2");
  EXPECT_EQ(steps(R"({"flops_profiler": {"enabled": false, "profile_step": 7},
                      "wall_clock_breakdown": false})"),
            "");
  EXPECT_PRED2(contains,
               error_with_json(R"({"flops_profiler": {"enabled": true, "profile_step": 0}})"),
               "'flops_profiler.profile_step' must be an update, counted from 1, not '0'");
}

TEST_F(DeepSpeedTest, OffloadIsAKey) {
  const auto config =
      with_json(
          R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3},
                                "offload_param": {"device": "cpu", "pin_memory": true}}})")
          .config;
  EXPECT_EQ(config.offload.offload_optimizer, Offload::kCpu);
  EXPECT_EQ(config.offload.offload_param, Offload::kCpu);
}

TEST_F(DeepSpeedTest, RequestsToADiskAreKeys) {
  constexpr const char* kJson =
      R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"}},
          "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 2,
                  "single_submit": false, "overlap_events": true}})";
  const auto offload = with_json(kJson).config.offload;
  EXPECT_EQ(offload.nvme_block_size, 262144);
  EXPECT_EQ(offload.nvme_queue_depth, 32);
  EXPECT_EQ(offload.nvme_threads, 2);
  EXPECT_EQ(with_json(kJson, "nvme_queue_depth: 4\n").config.offload.nvme_queue_depth, 4);
  EXPECT_PRED2(contains, notes_of(with_json(R"({"aio": {"queue_depth": 8}})")),
               "'nvme_queue_depth' has no effect: nothing is offloaded to nvme");
  EXPECT_PRED2(contains, error_with_json(R"({"aio": {"queue_depth": -1}})"), "must be at least 0");
  EXPECT_PRED2(contains, error_with_json(R"({"aio": {"queue_dept": 8}})"), "aio.queue_depth");
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

// What HF Trainer compares: keys that are written, each type with its own switch.
TEST_F(DeepSpeedTest, StrictConflictsAreThoseOfHf) {
  const auto refused = [&](const char* json, const std::string& yaml) {
    return error_with_json(json, "deepspeed_conflict: error\n" + yaml);
  };
  for (const auto& [json, yaml] : std::map<const char*, std::string>{
           {R"({"steps_per_print": 10})", "logging_steps: 5\n"},
           {R"({"zero_optimization": {"stage": 2}})", "distributed_strategy: zero1\n"},
           {R"({"optimizer": {"type": "AdamW"}})", "learning_rate: 1e-4\n"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {}}})", "warmup_steps: 10\n"},
           {R"({"fp16": {"enabled": false}})", "bf16: true\n"}}) {
    EXPECT_EQ(refused(json, yaml), "") << json;
  }
  EXPECT_PRED2(contains, refused(R"({"bf16": {"enabled": false}})", "bf16: true\n"), "disagree");
  EXPECT_PRED2(contains, refused(R"({"fp16": {"enabled": true}})", "bf16: true\n"), "disagree");
  EXPECT_PRED2(contains, refused(R"({"optimizer": {"params": {"lr": 1}}})", "lr: 2\n"), "disagree");
}

// A start says what is not as the file says; `skein config show` has a line for every key.
TEST_F(DeepSpeedTest, TheNotesOfAStartAreShort) {
  const auto resolved = with_json(kPlain, "learning_rate: 1e-4\n");
  ASSERT_EQ(resolved.notes.size(), 2U);
  EXPECT_EQ(without_folder(resolved.notes[0]),
            "run.yaml:1:1: DeepSpeed keys: 12 honoured, 3 emulated, 1 auto, 1 without effect "
            "(zero_optimization.allgather_bucket_size); `skein config show` says more of each");
  EXPECT_PRED2(contains, resolved.notes[1], "learning_rate: 0.0001");
  EXPECT_GT(resolved.details.size(), 15U);
  const auto unused = with_json(R"({"fp16": {"enabled": "auto", "loss_scale_window": 9},
                                    "bf16": {"enabled": "auto"}})",
                                "bf16: true\n");
  EXPECT_EQ(unused.notes.size(), 1U);
  EXPECT_PRED2(contains, notes_of(unused), "'loss_scale_window' has no effect: dtype is bfloat16");
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
