// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/implied_settings.h"

#include <algorithm>
#include <cstdlib>

#include "skein/config/test_support.h"

namespace skein::config {
namespace {

class ImpliedSettingsTest : public ConfigTest {
 protected:
  ImpliedSettingsTest() { clear(); }
  ~ImpliedSettingsTest() override { clear(); }
  static void clear() {
    ::unsetenv("NCCL_TIMEOUT");
    ::unsetenv("DEEPSPEED_TIMEOUT");
  }
  EvalStrategy strategy(const std::string& yaml, const std::vector<std::string>& words = {}) const {
    return load_yaml(yaml, words).config.eval.eval_strategy;
  }
};

TEST_F(ImpliedSettingsTest, ReportersAreAWordAListOrFlags) {
  struct Case {
    const char* yaml;
    std::vector<std::string> expected;
  };
  const Case cases[] = {
      {"", {"tensorboard"}},
      {"report_to: none", {}},
      {"report_to: []", {}},
      {"report_to: [none]", {}},
      {"report_to: null", {}},
      {"report_to: all", {"tensorboard", "wandb"}},
      {"report_to: wandb", {"wandb"}},
      {"report_to: wandb,tensorboard", {"wandb", "tensorboard"}},
      {"report_to: [TensorBoard, wandb, wandb]", {"tensorboard", "wandb"}},
      {"use_wandb: true", {"wandb"}},
      {"use_wandb: true\nuse_tensorboard: true", {"wandb", "tensorboard"}},
      {"use_tensorboard: false", {"tensorboard"}},
  };
  for (const auto& c : cases)
    EXPECT_EQ(load_yaml(c.yaml).config.log.report_to, c.expected) << c.yaml;
  EXPECT_EQ(load_yaml("report_to: wandb", {"--report_to", "none"}).config.log.report_to,
            std::vector<std::string>());
}

TEST_F(ImpliedSettingsTest, AnAutomaticMicroBatchIsAKeyOfItsOwn) {
  for (const char* yaml : {"per_device_train_batch_size: auto", "micro_batch_size: Auto",
                           "auto_find_batch_size: true"}) {
    const auto batch = load_yaml(yaml).config.batch;
    EXPECT_TRUE(batch.auto_find_batch_size) << yaml;
    EXPECT_FALSE(batch.per_device_train_batch_size) << yaml;
  }
  const auto both = load_yaml("auto_find_batch_size: true\nper_device_train_batch_size: 16");
  EXPECT_EQ(both.config.batch.per_device_train_batch_size, 16);
  EXPECT_EQ(load_yaml("micro_batch_size: auto").origin_of("auto_find_batch_size").spelling,
            "micro_batch_size: auto");
  EXPECT_FALSE(load_yaml("per_device_train_batch_size: auto", {"--per_device_train_batch_size=4"})
                   .config.batch.auto_find_batch_size);
  EXPECT_EQ(error_of("auto_find_batch_size: false\nper_device_train_batch_size: auto"),
            "run.yaml:2:1: 'per_device_train_batch_size: auto' contradicts "
            "'auto_find_batch_size: false' (run.yaml:1:1); keep one");
}

TEST_F(ImpliedSettingsTest, OffloadedActivationsAreThoseOfCheckpointing) {
  for (const char* yaml : {"gradient_checkpointing: offload", "offload_activations: true",
                           "activation_offloading: true\ngradient_checkpointing: true",
                           "gradient_checkpointing: Offload\noffload_activations: true"}) {
    const auto model = load_yaml(yaml).config.model;
    EXPECT_TRUE(model.gradient_checkpointing) << yaml;
    EXPECT_TRUE(model.offload_activations) << yaml;
  }
  const auto notes = load_yaml("offload_activations: true").notes;
  ASSERT_EQ(notes.size(), 1);
  EXPECT_TRUE(notes[0].ends_with("'offload_activations' switches gradient_checkpointing on"));
  EXPECT_FALSE(load_yaml("gradient_checkpointing: true").config.model.offload_activations);
  EXPECT_FALSE(load_yaml("offload_activations: false").config.model.gradient_checkpointing);
  const auto saved = to_yaml(load_yaml("gradient_checkpointing: offload"));
  EXPECT_TRUE(load_yaml(saved).config.model.offload_activations);
  EXPECT_EQ(error_of("gradient_checkpointing: false\noffload_activations: true"),
            "run.yaml:2:1: 'offload_activations' is of what gradient_checkpointing keeps, which is "
            "false (run.yaml:1:1): drop one");
  EXPECT_EQ(error_of("gradient_checkpointing: offload\noffload_activations: false"),
            "run.yaml:1:1: 'gradient_checkpointing: offload' contradicts 'offload_activations: "
            "false' (run.yaml:2:1); keep one");
}

TEST_F(ImpliedSettingsTest, ScheduleObjectsAreNestedKeys) {
  const auto schedule = load_yaml(
                            "lr_scheduler_type: warmup_stable_decay\n"
                            "lr_scheduler_kwargs: {num_decay_steps: 20, min_lr_ratio: 0.1, "
                            "decay_type: 1-sqrt}\n")
                            .config.schedule;
  EXPECT_EQ(schedule.lr_scheduler_type, Schedule::kWarmupStableDecay);
  EXPECT_EQ(schedule.num_decay_steps, 20);
  EXPECT_EQ(schedule.min_lr_rate, 0.1);
  EXPECT_EQ(schedule.decay_type, Curve::kOneMinusSqrt);
  const auto words =
      load_yaml("", {"--lr_scheduler_kwargs", R"({"num_cycles": 3, "power": 2})"}).config.schedule;
  EXPECT_EQ(words.num_cycles, 3);
  EXPECT_EQ(words.power, 2);
  EXPECT_EQ(load_yaml("", {"lr_scheduler_kwargs.lr_end=1e-6"}).config.schedule.lr_end, 1e-6);
}

TEST_F(ImpliedSettingsTest, DoEvalFollowsTheStrategy) {
  EXPECT_EQ(strategy("do_eval: true"), EvalStrategy::kEpoch);
  EXPECT_EQ(strategy("do_eval: true\neval_strategy: steps"), EvalStrategy::kSteps);
  EXPECT_EQ(strategy("do_eval: false\nevaluation_strategy: no"), EvalStrategy::kNo);
  EXPECT_EQ(strategy("eval_strategy: steps", {"--do_eval", "false"}), EvalStrategy::kNo);
  EXPECT_EQ(strategy("do_eval: false", {"eval_strategy=epoch"}), EvalStrategy::kEpoch);
  EXPECT_PRED2(contains, notes_of(load_yaml("do_eval: true")),
               "run.yaml:1:1: 'do_eval' is read as eval_strategy: epoch");
}

TEST_F(ImpliedSettingsTest, ShareOfTheDataHeldOut) {
  EXPECT_EQ(load_yaml("val_size: 0.07").config.data.validation_split_percentage, 7);
  EXPECT_EQ(load_yaml("validation_split_percentage: 5%").config.data.validation_split_percentage,
            5);
  EXPECT_EQ(load_yaml("validation_split_percentage: 5").config.data.validation_split_percentage, 5);
}

TEST_F(ImpliedSettingsTest, ResumeWords) {
  const auto resume = [&](const std::string& value) {
    return load_yaml("resume_from_checkpoint: " + value).config.checkpoint.resume_from_checkpoint;
  };
  for (const auto* value : {"true", "True", "latest", "auto", "none", "~"}) {
    EXPECT_EQ(resume(value), "auto") << value;
  }
  EXPECT_EQ(resume("false"), "false");
  EXPECT_EQ(resume("no"), "false");
  EXPECT_EQ(resume("outputs/x/checkpoints/latest"), "outputs/x/checkpoints/latest");
}

TEST_F(ImpliedSettingsTest, OneNameServesFolderAndLogs) {
  EXPECT_EQ(load_yaml("run_name: a").config.checkpoint.experiment_name, "a");
  EXPECT_EQ(load_yaml("experiment_name: b").config.log.run_name, "b");
  const auto both = load_yaml("run_name: a\nexperiment_name: b").config;
  EXPECT_EQ(both.log.run_name + both.checkpoint.experiment_name, "ab");
}

TEST_F(ImpliedSettingsTest, KeysThatDoNothingInThisRunAreNoted) {
  EXPECT_PRED2(contains, notes_of(load_yaml("eval_steps: 10")),
               "run.yaml:1:1: 'eval_steps' has no effect: eval_strategy is no");
  EXPECT_PRED2(contains, notes_of(load_yaml("lr_scheduler_kwargs: {lr_end: 1e-6}")),
               "'lr_end' has no effect: lr_scheduler_type is linear");
  for (const auto* line :
       {"template: chatml", "chat_template: a.jinja", "mask_history: true", "train_on_prompt: true",
        "group_by_length: true", "packing: true", "excess_length_strategy: drop", "val_size: 12"}) {
    const auto notes = notes_of(load_yaml(line));
    EXPECT_PRED2(contains, notes, "has no effect: stage is pt") << line;
    EXPECT_EQ(std::ranges::count(notes, '\n'), 1) << line;
    EXPECT_EQ(notes_of(load_yaml(std::string("stage: sft\n") + line)), "") << line;
  }
  for (const auto* line : {"eval_file: a.txt", "eval_on_start: true", "max_eval_samples: 3"}) {
    EXPECT_PRED2(contains, notes_of(load_yaml(line)), "has no effect: eval_strategy is no");
  }
  EXPECT_PRED2(contains, notes_of(load_yaml("save_strategy: epoch\nsave_steps: 10")),
               "'save_steps' has no effect: save_strategy is epoch");
  for (const auto* quiet : {"eval_strategy: steps\neval_steps: 10",
                            "lr_scheduler_type: polynomial\nlr_end: 1e-6", "lr_end: 1e-7"}) {
    EXPECT_EQ(notes_of(load_yaml(quiet)), "") << quiet;
  }
  EXPECT_EQ(notes_of(load_yaml(to_yaml(load_yaml("")))), "");
}

TEST_F(ImpliedSettingsTest, KeysOfMemoryThatDoNothingAreNoted) {
  const std::pair<const char*, const char*> cases[] = {
      {"nvme_path: /tmp", "'nvme_path' has no effect: nothing is offloaded to nvme"},
      {"nvme_queue_depth: 4", "'nvme_queue_depth' has no effect: nothing is offloaded to nvme"},
      {"distributed_strategy: zero1\noffload_pin_memory: false",
       "'offload_pin_memory' has no effect: nothing is offloaded"},
      {"offload_optimizer: cpu\noffload_ratio: 0",
       "'offload_optimizer' has no effect: offload_ratio is 0"},
      {"offload_param: cpu\noffload_optimizer: none",
       "run.yaml:2:1: 'offload_optimizer: none' has no effect: offload_param: cpu takes"},
      {"optim: paged_adamw_8bit", "is read as adamw_8bit: states are not paged"},
      {"optim: paged_adamw", "is read as adamw_torch: states are not paged"},
      {"ds_compat: 0.16", "'ds_compat' has no effect: no DeepSpeed file is given"},
      {"deepspeed: true", "'deepspeed: true' has no effect: it names no file"},
  };
  for (const auto& [yaml, says] : cases) {
    EXPECT_PRED2(contains, notes_of(load_yaml(yaml)), says) << yaml;
  }
  for (const auto* quiet : {"offload_param: cpu", "ds_compat: 0.16\nlr_scheduler_type: warmuplr",
                            "offload_pin_memory: false", "optim: adamw_bnb_8bit"}) {
    EXPECT_EQ(notes_of(load_yaml(quiet)), "") << quiet;
  }
}

TEST_F(ImpliedSettingsTest, CpuByFlag) {
  EXPECT_EQ(load_yaml("", {"--use_cpu"}).config.parallel.device, Device::kCpu);
  EXPECT_EQ(load_yaml("no_cuda: false").config.parallel.device, Device::kAuto);
  EXPECT_PRED2(contains, error_of("use_cpu: true\ndevice: cuda"), "contradicts");
}

TEST_F(ImpliedSettingsTest, TimeoutPrecedence) {
  const auto timeout = [&](const std::string& yaml) {
    const auto resolved = load_yaml(yaml);
    return std::to_string(resolved.config.parallel.ddp_timeout) + " " +
           without_folder(resolved.origin_of("ddp_timeout").text());
  };
  EXPECT_EQ(timeout(""), "1800 default");
  ::setenv("NCCL_TIMEOUT", "90", 1);
  EXPECT_EQ(timeout(""), "90 environment: NCCL_TIMEOUT");
  ::setenv("DEEPSPEED_TIMEOUT", "30", 1);
  EXPECT_EQ(timeout(""), "1800 environment: DEEPSPEED_TIMEOUT");
  EXPECT_EQ(timeout("ddp_timeout: 7"), "7 run.yaml:1:1");
  ::setenv("DEEPSPEED_TIMEOUT", "half", 1);
  EXPECT_PRED2(contains, error_of(""),
               "environment: DEEPSPEED_TIMEOUT: must be a whole number of minutes");
}

}  // namespace
}  // namespace skein::config
