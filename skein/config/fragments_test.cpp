// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Fragments of existing guides, as users paste them: each is accepted, or refused with its reason.
#include "skein/config/batch_plan.h"
#include "skein/config/test_support.h"

namespace skein::config {
namespace {

using FragmentsTest = ConfigTest;

TEST_F(FragmentsTest, AcceptedFragments) {
  const char* fragments[] = {
      "training:\n  use_ddp: true\n  batch_size: 32\n",
      "training:\n  batch_size: 8\n  accumulation_steps: 4\n",
      "training:\n  distributed_strategy: \"auto\"\n",
      "training:\n  distributed: true\n  distributed_backend: \"nccl\"\n"
      "  find_unused_parameters: false\n  ddp_bucket_cap_mb: 25\n  ddp_broadcast_buffers: true\n"
      "  per_device_train_batch_size: 4\n  gradient_accumulation_steps: 2\n"
      "  fp16: false\n  bf16: true\n  gradient_checkpointing: true\n"
      "  dataloader_num_workers: 4\n  dataloader_pin_memory: true\n  dataloader_drop_last: true\n",
      "training:\n  learning_rate: 5e-5\n  warmup_ratio: 0.1\n  lr_scheduler_type: \"cosine\"\n",
      "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
      "gradient_checkpointing: true\nbf16: true\nseed: 42\n",
      "training:\n  experiment_name: \"sft_4gpu_experiment\"\n  save_steps: 500\n"
      "  save_total_limit: 3\n  logging_steps: 50\n",
      "dataloader_num_workers: 8\ndataloader_pin_memory: true\ndataloader_prefetch_factor: 2\n",
      "training:\n  distributed: true\n  distributed_strategy: \"ddp\"\n  dataloader:\n"
      "    batch_size: 8\n    num_workers: 4\n    pin_memory: true\n"
      "  gradient_accumulation_steps: 4\n  mixed_precision: \"fp16\"\n  max_grad_norm: 1.0\n",
      "training:\n  use_mixed_precision: true\n  num_workers: 8\n  pin_memory: true\n"
      "  prefetch_factor: 2\n  set_to_none: true\n",
      "training:\n  report_to: [\"tensorboard\", \"wandb\"]\n",
      "training:\n  resume_from_checkpoint: \"./outputs/experiment/checkpoints/latest\"\n"
      "  save_strategy: \"steps\"\n  save_steps: 1000\n",
      "training:\n  evaluation_strategy: \"steps\"\n  eval_steps: 100\n  do_eval: true\n"
      "  per_device_eval_batch_size: 4\n  load_best_model_at_end: true\n"
      "  metric_for_best_model: eval_loss\n  greater_is_better: false\n",
      "deepspeed: {zero_optimization: {stage: 3, stage3_gather_16bit_weights_on_model_save: true, "
      "stage3_max_live_parameters: 1e9, stage3_max_reuse_distance: 1e9}}\n",
  };
  for (const auto* yaml : fragments) EXPECT_EQ(error_of(yaml), "") << yaml;
}

TEST_F(FragmentsTest, RefusedFragmentsNameTheMissingFeature) {
  struct Case {
    const char* yaml;
    const char* message;
  };
  const Case cases[] = {
      {"training:\n  distributed_strategy: \"deepspeed\"\n  dataloader_num_workers: 4\n",
       "run.yaml:2:25: 'distributed_strategy: deepspeed' takes the stage from a DeepSpeed file"},
  };
  for (const auto& c : cases) EXPECT_PRED2(contains, error_of(c.yaml), c.message) << c.yaml;
}

TEST_F(FragmentsTest, CommandsWithoutAFile) {
  const std::string words[] = {"--model_name_or_path",  "m",     "--dataset_name", "wikitext,b",
                               "--dataset_config_name", "c,none"};
  EXPECT_THROW(load(words), UserError);
  const std::string plain[] = {
      "--model_name_or_path", "m", "--train_file", "a.txt", "--mode", "train"};
  EXPECT_EQ(load(plain).config.data.train_file, "a.txt");
}

TEST_F(FragmentsTest, TheFourRankCommand) {
  const auto resolved = load_yaml("training:\n  use_ddp: true\n",
                                  {"--stage", "pretrain", "--batch_size", "32", "--lr", "1.6e-3"});
  EXPECT_EQ(resolved.config.optimizer.learning_rate, 1.6e-3);
  EXPECT_EQ(plan_batches(resolved, 4).per_device, 8);
}

}  // namespace
}  // namespace skein::config
