// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What can a run be told? One struct per component, defaults in place.
//
// A component sees its own struct and nothing more. Canonical keys are the member names: those of
// HF TrainingArguments and LLaMA-Factory.

#include <cstdint>
#include <optional>
#include <string>

namespace skein::config {

enum class DType { kAuto, kFloat32, kBFloat16, kFloat64 };
enum class Device { kAuto, kCuda, kCpu };
enum class Strategy { kAuto, kDdp, kZero1, kZero2, kZero3 };
enum class Schedule { kConstant, kConstantWithWarmup, kLinear, kCosine };
enum class NanPolicy { kStop, kSkip, kRollback };
enum class Stage { kPretrain };

struct ModelConfig {
  std::string model_name_or_path;    // folder with config.json (and weights, unless from scratch)
  bool train_from_scratch = false;   // initialise from `seed` instead of loading weights
  DType dtype = DType::kAuto;        // working weights; auto: bfloat16 on GPUs that have it, else float32
  bool gradient_checkpointing = false;  // recompute each block in backward: less memory, a third more compute
};

struct DataConfig {
  std::string train_file;  // .txt, .jsonl with "text", or .bin of little-endian uint16 token ids
  int64_t block_size = 1024;          // tokens per block, block_size - 1 targets
  bool dataloader_drop_last = false;  // drop the last incomplete *global* batch of an epoch
};

struct BatchConfig {
  std::optional<int64_t> per_device_train_batch_size;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<int64_t> global_batch_size;
  std::optional<int64_t> batch_size;  // bare spelling of the seeds; see docs/configuration.md for its reading
};

struct OptimizerConfig {
  double learning_rate = 5e-5;
  double weight_decay = 0.0;  // not applied to biases and norm weights
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping
  bool grad_accum_fp32 = false;  // grad_accum_dtype: fp32; always so with accumulation
  NanPolicy nan_policy = NanPolicy::kStop;
};

struct ScheduleConfig {
  Schedule lr_scheduler_type = Schedule::kLinear;
  double warmup_steps = 0;  // below 1: a share of all steps
  double warmup_ratio = 0;
  double num_train_epochs = 3;
  int64_t max_steps = -1;  // positive: wins over num_train_epochs
};

struct ParallelConfig {
  Strategy distributed_strategy = Strategy::kAuto;  // auto = ddp
  Device device = Device::kAuto;
  std::string ddp_backend = "auto";  // gloo, nccl, auto: nccl on GPUs, gloo on CPUs
  int64_t ddp_timeout = 1800;        // seconds a collective may take before the run ends with exit code 3
};

struct CheckpointConfig {
  std::string output_dir;
  std::string experiment_name;  // without output_dir: outputs/<experiment_name>
  double save_steps = 500;      // below 1: a share of all steps
  std::optional<int64_t> save_total_limit;
  bool fresh = false;           // --fresh: start over instead of continuing a started run
};

struct LogConfig {
  double logging_steps = 500;  // below 1: a share of all steps
};

struct RunConfig {
  Stage stage = Stage::kPretrain;
  int64_t seed = 42;
  std::optional<int64_t> data_seed;  // absent: seed
  bool full_determinism = false;     // bit-exact on GPUs too, with slower kernels

  ModelConfig model;
  DataConfig data;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  LogConfig log;
};

}  // namespace skein::config
