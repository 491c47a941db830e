// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What can a run be told? One struct per component, defaults in place.
//
// A component sees its own struct and nothing more. Canonical keys are the member names: those of
// HF TrainingArguments and LLaMA-Factory. What each means and which values it takes stands in
// fields.h, from where `skein config --help` and docs/configuration.md have it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "skein/config/online_config.h"
#include "skein/config/syntax/choices.h"
#include "skein/core/dtype.h"

namespace skein::config {

struct ModelConfig {
  std::string model_name_or_path;
  bool train_from_scratch = false;
  std::optional<DType> dtype;
  bool gradient_checkpointing = false;
  bool offload_activations = false;
  QuantizationBit quantization_bit = QuantizationBit::kNone;
  bool double_quantization = true;
  std::string tokenizer_name_or_path;
  std::string rope_scaling;
  double rope_scaling_factor = 0;
  std::vector<std::string> new_special_tokens;
  bool resize_vocab = false;

  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string train_file;
  std::string train_file_dir;
  std::string eval_file;
  std::string validation_file_dir;
  int64_t block_size = 1024;
  std::optional<int64_t> max_train_samples;
  std::optional<int64_t> max_eval_samples;
  double validation_split_percentage = 0;
  int64_t validation_rows = 0;
  BadLines bad_lines = BadLines::kStop;
  int64_t preprocessing_num_workers = 0;
  bool dataloader_drop_last = false;
  int64_t dataloader_num_workers = 1;
  int64_t dataloader_prefetch_factor = 2;
  std::string data_cache_dir;
  bool overwrite_cache = false;

  bool operator==(const DataConfig&) const = default;
};

// Chat and instruction data, of every stage but pt.
struct RowsConfig {
  std::string chat_format;    // `template`: one of those that skein knows
  std::string chat_template;  // a file
  bool mask_history = false;
  bool train_on_prompt = false;
  bool packing = false;
  bool group_by_length = false;
  ExcessLength excess_length_strategy = ExcessLength::kTruncate;

  bool operator==(const RowsConfig&) const = default;
};

// Answers that people have judged, of stages rm, dpo and kto.
struct PreferenceConfig {
  double pref_beta = 0.1;
  std::vector<PreferenceLoss> pref_loss;  // empty: the stage's own
  std::vector<double> loss_weights;       // empty: all 1
  double pref_ftx = 0;
  double rpo_alpha = 0;
  double ld_alpha = 1;
  Divergence f_divergence_type = Divergence::kReverseKl;
  double f_alpha_divergence_coef = 0.5;
  double simpo_gamma = 0.5;
  double discopop_tau = 0.05;
  double kto_chosen_weight = 1;
  double kto_rejected_weight = 1;
  std::string ref_model;
  bool precompute_ref_log_probs = false;
  bool share_prompts = true;
  double center_rewards_coefficient = 0;
  EqualPairs equal_pairs = EqualPairs::kDrop;

  bool operator==(const PreferenceConfig&) const = default;
};

// Which weights train, and how they are kept from fitting too well.
struct FinetuneConfig {
  FinetuningType finetuning_type = FinetuningType::kFull;
  std::string adapter_name_or_path;
  int64_t lora_rank = 8;
  std::optional<int64_t> lora_alpha;
  double lora_dropout = 0;
  std::vector<std::string> lora_target = {"all"};
  std::map<std::string, double> rank_pattern, alpha_pattern;
  bool use_rslora = false, use_dora = false;
  double loraplus_lr_ratio = 0;
  std::vector<std::string> modules_to_save;
  int64_t freeze_trainable_layers = 2;
  std::vector<std::string> freeze_trainable_modules = {"all"};
  std::vector<std::string> freeze_extra_modules;
  bool use_llama_pro = false;
  double neftune_noise_alpha = 0;
  double label_smoothing_factor = 0;

  bool operator==(const FinetuneConfig&) const = default;
};

struct EvalConfig {
  EvalStrategy eval_strategy = EvalStrategy::kNo;
  double eval_steps = 0;
  int64_t per_device_eval_batch_size = 8;
  bool eval_on_start = false;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "loss";
  GreaterIsBetter greater_is_better = GreaterIsBetter::kAuto;
  std::optional<int64_t> early_stopping_patience;
  double early_stopping_threshold = 0;

  bool operator==(const EvalConfig&) const = default;
};

struct BatchConfig {
  std::optional<int64_t> per_device_train_batch_size;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<int64_t> global_batch_size;
  // The bare spelling. load() reads it as one of the above and leaves it absent.
  std::optional<int64_t> batch_size;
  BatchConflict batch_conflict = BatchConflict::kError;
  // per_device_train_batch_size: auto. The launcher finds it (plan/fit.h), and ranks have numbers.
  bool auto_find_batch_size = false;

  bool operator==(const BatchConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerKind optim = OptimizerKind::kAdamW;
  bool pure_bf16 = false;
  double learning_rate = 5e-5;
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;
  bool grad_accum_fp32 = false;
  NanPolicy nan_policy = NanPolicy::kStop;

  bool operator==(const OptimizerConfig&) const = default;
};

// Of training in float16.
struct LossScaleConfig {
  LossScaleRule loss_scaler = LossScaleRule::kPyTorch;
  double loss_scale = 0;
  int64_t initial_scale_power = 16;
  int64_t loss_scale_window = 0;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;

  bool operator==(const LossScaleConfig&) const = default;
};

// What DeepSpeed's schedules take besides learning_rate, warmup_steps and warmup_type.
struct DeepSpeedScheduleConfig {
  DsCompat ds_compat = DsCompat::k0_19;
  double warmup_min_lr = 0;
  int64_t total_num_steps = 0;
  double warmup_min_ratio = 0;
  double cos_min_ratio = 1e-4;
  double cycle_min_lr = 0;
  int64_t cycle_first_step_size = 2000;
  std::optional<int64_t> cycle_second_step_size;
  int64_t cycle_first_stair_count = 0;
  std::optional<int64_t> cycle_second_stair_count;
  int64_t decay_step_size = 0;
  double decay_lr_rate = 0;
  int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1;
  bool lr_range_test_staircase = false;

  bool operator==(const DeepSpeedScheduleConfig&) const = default;
};

struct ScheduleConfig {
  Schedule lr_scheduler_type = Schedule::kLinear;
  double warmup_steps = 0;
  double warmup_ratio = 0;
  double num_train_epochs = 3;
  int64_t max_steps = -1;
  double num_cycles = -1;
  double lr_end = 1e-7;
  double power = 1.0;
  double min_lr = 0;
  double min_lr_rate = 0;
  int64_t num_decay_steps = 0;
  int64_t num_stable_steps = 0;
  WarmupCurve warmup_type = WarmupCurve::kAuto;
  Curve decay_type = Curve::kCosine;
  int64_t timescale = 0;
  int64_t lr_decay_iters = 0;
  LrScaling lr_scaling = LrScaling::kNone;
  int64_t lr_scaling_base_batch = 0;
  DeepSpeedScheduleConfig deepspeed;

  bool operator==(const ScheduleConfig&) const = default;
};

// What lies in host memory or on a disk between its uses.
struct OffloadConfig {
  Offload offload_optimizer = Offload::kNone;
  Offload offload_param = Offload::kNone;
  double offload_ratio = 1;
  bool pin_memory = true;
  std::string nvme_path;
  int64_t nvme_block_size = 0;
  int64_t nvme_queue_depth = 0;
  int64_t nvme_threads = 0;

  bool operator==(const OffloadConfig&) const = default;
};

struct ParallelConfig {
  Strategy distributed_strategy = Strategy::kAuto;
  Device device = Device::kAuto;
  std::string ddp_backend = "auto";
  int64_t ddp_timeout = 1800;
  int64_t heartbeat_timeout = 4;
  int64_t join_timeout = 600;
  int64_t stop_grace = 30;
  bool distributed = true;

  bool operator==(const ParallelConfig&) const = default;
};

struct CheckpointConfig {
  std::string output_dir;
  std::string experiment_name;
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  double save_steps = 500;
  std::optional<int64_t> save_total_limit;
  int64_t save_timeout = 600;
  bool save_only_model = false;
  bool save_on_each_node = false;
  int64_t max_shard_size = 50'000'000'000;
  std::string resume_from_checkpoint = "auto";
  bool fresh = false;

  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  double logging_steps = 500;
  bool logging_first_step = false;
  std::vector<std::string> report_to = {"tensorboard"};
  std::string run_name;
  bool disable_tqdm = false;
  double loss_spike_zscore = 6;
  std::string profile_steps;

  bool operator==(const LogConfig&) const = default;
};

struct RunConfig {
  TrainingStage stage = TrainingStage::kPretrain;
  int64_t seed = 42;
  std::optional<int64_t> data_seed;
  bool full_determinism = false;

  ModelConfig model;
  DataConfig data;
  RowsConfig rows;
  PreferenceConfig preference;
  RolloutConfig rollout;
  RewardConfig reward;
  PolicyConfig policy;
  PpoConfig ppo;
  FinetuneConfig finetune;
  EvalConfig eval;
  BatchConfig batch;
  OptimizerConfig optimizer;
  LossScaleConfig loss_scale;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  OffloadConfig offload;
  CheckpointConfig checkpoint;
  LogConfig log;

  bool operator==(const RunConfig&) const = default;
};

}  // namespace skein::config
