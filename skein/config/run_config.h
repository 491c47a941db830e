// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What can a run be told? One struct per component, defaults in place.
//
// A component sees its own struct and nothing more. Canonical keys are the member names: those of
// HF TrainingArguments and LLaMA-Factory. Each struct's fields() is the one list that parsing,
// help, printing, saving and "unknown key" walk: field(name, member, about).

#include <cstdint>
#include <optional>
#include <string>

#include "skein/config/about.h"

namespace skein::config {

enum class DType { kAuto, kFloat32, kBFloat16, kFloat64 };
enum class Device { kAuto, kCuda, kCpu };
enum class Strategy { kAuto, kDdp, kZero1, kZero2, kZero3 };
enum class Schedule { kConstant, kConstantWithWarmup, kLinear, kCosine };
enum class NanPolicy { kStop, kSkip, kRollback };
enum class Stage { kPretrain };
// What to do when per device x accumulation x ranks is not the global batch.
enum class BatchConflict { kError, kKeepMicro, kKeepGlobal };

struct ModelConfig {
  std::string model_name_or_path;   // folder with config.json (and weights, unless from scratch)
  bool train_from_scratch = false;  // initialise from `seed` instead of loading weights
  DType dtype = DType::kAuto;  // working weights; auto: bfloat16 on GPUs that have it, else float32
  bool gradient_checkpointing =
      false;  // recompute each block in backward: less memory, a third more compute

  void fields(auto&& field) {
    field("model_name_or_path", model_name_or_path,
          About{.help = "folder with config.json, and weights unless train_from_scratch",
                .aliases = {"model_path", "base_model"}});
    field("train_from_scratch", train_from_scratch,
          About{.help = "initialise from seed instead of loading weights"});
    field("dtype", dtype,
          About{.help = "working weights: auto (bfloat16 where native, else float32), float32, "
                        "bfloat16, float64",
                .aliases = {"torch_dtype"}});
    field("gradient_checkpointing", gradient_checkpointing,
          About{.help = "recompute each block in backward: less memory, a third more compute"});
  }
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string train_file;     // .txt, .jsonl with "text", or .bin of little-endian uint16 token ids
  int64_t block_size = 1024;  // tokens per block, block_size - 1 targets
  bool dataloader_drop_last = false;  // drop the last incomplete *global* batch of an epoch

  void fields(auto&& field) {
    field("train_file", train_file,
          About{.help = ".txt, .jsonl with \"text\", or .bin of little-endian uint16 token ids"});
    field("block_size", block_size,
          About{.help = "tokens per block",
                .aliases = {"cutoff_len", "max_length", "max_seq_length", "sequence_len"},
                .min = 2});
    field("dataloader_drop_last", dataloader_drop_last,
          About{.help = "drop the last incomplete global batch of an epoch",
                .aliases = {"dataloader.drop_last", "drop_last"}});
  }
  bool operator==(const DataConfig&) const = default;
};

struct BatchConfig {
  std::optional<int64_t> per_device_train_batch_size;
  std::optional<int64_t> gradient_accumulation_steps;
  std::optional<int64_t> global_batch_size;
  // The bare spelling. load() reads it as one of the above and leaves it absent.
  std::optional<int64_t> batch_size;
  BatchConflict batch_conflict = BatchConflict::kError;

  void fields(auto&& field) {
    field("per_device_train_batch_size", per_device_train_batch_size,
          About{.help = "blocks per rank and micro-batch; 8 when nothing says otherwise",
                .aliases = {"micro_batch_size", "micro_batch_size_per_gpu",
                            "train_micro_batch_size_per_gpu", "dataloader.batch_size"},
                .min = 1});
    field("gradient_accumulation_steps", gradient_accumulation_steps,
          About{.help = "micro-batches per update; 1 when nothing says otherwise",
                .aliases = {"accumulation_steps"},
                .min = 1});
    field(
        "global_batch_size", global_batch_size,
        About{
            .help = "blocks per update over all ranks", .aliases = {"train_batch_size"}, .min = 1});
    field("batch_size", batch_size,
          About{.help = "global batch when alone, per device beside gradient_accumulation_steps",
                .min = 1,
                .saved = false});
    field("batch_conflict", batch_conflict,
          About{.help = "when the three do not multiply: error, keep_micro, keep_global"});
  }
  bool operator==(const BatchConfig&) const = default;
};

struct OptimizerConfig {
  double learning_rate = 5e-5;
  double weight_decay = 0.0;  // not applied to biases and norm weights
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;    // 0: no clipping
  bool grad_accum_fp32 = false;  // grad_accum_dtype: fp32; always so with accumulation
  NanPolicy nan_policy = NanPolicy::kStop;

  void fields(auto&& field) {
    field("learning_rate", learning_rate,
          About{.help = "peak learning rate", .aliases = {"lr"}, .min = 0});
    field("weight_decay", weight_decay,
          About{.help = "not applied to biases and norm weights", .min = 0});
    field("adam_beta1", adam_beta1,
          About{.help = "AdamW beta1", .min = 0, .max = 1, .max_is_allowed = false});
    field("adam_beta2", adam_beta2,
          About{.help = "AdamW beta2", .min = 0, .max = 1, .max_is_allowed = false});
    field("adam_epsilon", adam_epsilon,
          About{.help = "AdamW epsilon", .min = 0, .min_is_allowed = false});
    field("max_grad_norm", max_grad_norm,
          About{.help = "clip the gradient to this norm; 0: no clipping", .min = 0});
    field("grad_accum_fp32", grad_accum_fp32,
          About{.help = "keep gradients in float32; always so with accumulation"});
    field("nan_policy", nan_policy,
          About{.help = "when loss or gradient is not finite: stop, skip, rollback"});
  }
  bool operator==(const OptimizerConfig&) const = default;
};

struct ScheduleConfig {
  Schedule lr_scheduler_type = Schedule::kLinear;
  double warmup_steps = 0;  // below 1: a share of all steps
  double warmup_ratio = 0;
  double num_train_epochs = 3;
  int64_t max_steps = -1;  // positive: wins over num_train_epochs

  void fields(auto&& field) {
    field("lr_scheduler_type", lr_scheduler_type,
          About{.help = "constant, constant_with_warmup, linear, cosine",
                .aliases = {"lr_scheduler"}});
    field("warmup_steps", warmup_steps,
          About{.help = "updates of linear warm-up; below 1: a share of all", .min = 0});
    field("warmup_ratio", warmup_ratio,
          About{.help = "the same as a share of all updates", .min = 0, .max = 1});
    field("num_train_epochs", num_train_epochs,
          About{.help = "passes over the data, fractions allowed",
                .aliases = {"num_epochs"},
                .min = 0,
                .min_is_allowed = false});
    field("max_steps", max_steps,
          About{.help = "updates; positive: wins over num_train_epochs", .min = -1});
  }
  bool operator==(const ScheduleConfig&) const = default;
};

struct ParallelConfig {
  Strategy distributed_strategy = Strategy::kAuto;  // auto = ddp
  Device device = Device::kAuto;
  std::string ddp_backend = "auto";  // gloo, nccl, auto: nccl on GPUs, gloo on CPUs
  int64_t ddp_timeout = 1800;  // seconds a collective may take before the run ends with exit code 3
  bool distributed = true;     // false: one rank, no group

  void fields(auto&& field) {
    field("distributed_strategy", distributed_strategy,
          About{.help = "auto (ddp), ddp, zero1, zero2, zero3; deepspeed: as the JSON says"});
    field("device", device, About{.help = "auto, cuda, cpu"});
    field("ddp_backend", ddp_backend,
          About{.help = "auto (nccl on GPUs, gloo on CPUs), nccl, gloo",
                .aliases = {"distributed_backend"},
                .choices = {"auto", "nccl", "gloo"}});
    field("ddp_timeout", ddp_timeout,
          About{.help = "seconds a collective may take before the run ends", .min = 1});
    field("distributed", distributed,
          About{.help = "false: one rank, no group", .aliases = {"ddp", "use_ddp"}});
  }
  bool operator==(const ParallelConfig&) const = default;
};

struct CheckpointConfig {
  std::string output_dir;
  std::string experiment_name;  // without output_dir: outputs/<experiment_name>
  double save_steps = 500;      // below 1: a share of all steps
  std::optional<int64_t> save_total_limit;
  bool fresh = false;  // --fresh: start over instead of continuing a started run

  void fields(auto&& field) {
    field("output_dir", output_dir, About{.help = "the run's folder", .aliases = {"output_path"}});
    field("experiment_name", experiment_name,
          About{.help = "without output_dir: outputs/<experiment_name>", .aliases = {"run_name"}});
    field("save_steps", save_steps,
          About{.help = "updates between checkpoints; below 1: a share of all",
                .min = 0,
                .min_is_allowed = false});
    field("save_total_limit", save_total_limit,
          About{.help = "checkpoints to keep; absent: all", .min = 1});
    field("fresh", fresh,
          About{.help = "start over instead of continuing a started run", .saved = false});
  }
  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  double logging_steps = 500;  // below 1: a share of all steps

  void fields(auto&& field) {
    field("logging_steps", logging_steps,
          About{.help = "updates between log lines; below 1: a share of all",
                .min = 0,
                .min_is_allowed = false});
  }
  bool operator==(const LogConfig&) const = default;
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

  void fields(auto&& field) {
    field("stage", stage, About{.help = "pt (pretrain)", .aliases = {"algorithm"}});
    field("seed", seed, About{.help = "everything random follows from it", .min = 0});
    field("data_seed", data_seed, About{.help = "order of the data; absent: seed", .min = 0});
    field("full_determinism", full_determinism,
          About{.help = "bit-exact on GPUs too, with slower kernels"});
    model.fields(field);
    data.fields(field);
    batch.fields(field);
    optimizer.fields(field);
    schedule.fields(field);
    parallel.fields(field);
    checkpoint.fields(field);
    log.fields(field);
  }
  bool operator==(const RunConfig&) const = default;
};

}  // namespace skein::config
