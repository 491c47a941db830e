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
#include <vector>

#include "skein/config/about.h"
#include "skein/config/choices.h"
#include "skein/core/dtype.h"

namespace skein::config {

struct ModelConfig {
  std::string model_name_or_path;   // folder with config.json (and weights, unless from scratch)
  bool train_from_scratch = false;  // initialise from `seed` instead of loading weights
  std::optional<DType> dtype;  // working weights; auto: bfloat16 on GPUs that have it, else float32
  bool gradient_checkpointing =
      false;  // recompute each block in backward: less memory, a third more compute
  std::string tokenizer_name_or_path;  // empty: the model folder's tokenizer.json, else bytes

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
    field("tokenizer_name_or_path", tokenizer_name_or_path,
          About{.help = "folder or tokenizer.json; empty: the model folder's, else bytes",
                .aliases = {"tokenizer_name", "tokenizer_path", "tokenizer_config"}});
  }
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string train_file;      // .txt, .jsonl with "text", or .bin of token ids
  std::string train_file_dir;  // every such file below a folder
  std::string eval_file;
  std::string validation_file_dir;
  int64_t block_size = 1024;  // tokens per block, block_size - 1 targets
  std::optional<int64_t> max_train_samples;
  std::optional<int64_t> max_eval_samples;
  // Percent of the blocks that are held out. 0: none, or 5 when evaluation is on and no eval file
  // is given.
  double validation_split_percentage = 0;
  BadLines bad_lines = BadLines::kStop;
  int64_t preprocessing_num_workers = 0;   // 0: all cores
  bool dataloader_drop_last = false;       // drop the last incomplete *global* batch of an epoch
  int64_t dataloader_num_workers = 1;      // 0: no prefetch thread
  int64_t dataloader_prefetch_factor = 2;  // steps read ahead
  std::string data_cache_dir;  // empty: $XDG_CACHE_HOME/skein/data, or ~/.cache/skein/data
  bool overwrite_cache = false;

  void fields(auto&& field) {
    field("train_file", train_file,
          About{.help = ".txt, .jsonl with \"text\", or .bin of token ids (nanoGPT, llm.c)"});
    field("train_file_dir", train_file_dir,
          About{.help = "folder whose .txt, .jsonl and .bin files are trained on"});
    field("eval_file", eval_file,
          About{.help = "the same for evaluation", .aliases = {"validation_file"}});
    field("validation_file_dir", validation_file_dir,
          About{.help = "folder of files for evaluation", .aliases = {"eval_file_dir"}});
    field("block_size", block_size,
          About{.help = "tokens per block",
                .aliases = {"cutoff_len", "max_length", "max_seq_length", "sequence_len"},
                .min = 2});
    field("max_train_samples", max_train_samples,
          About{.help = "use at most this many blocks; absent: all",
                .aliases = {"max_samples"},
                .min = 1});
    field("max_eval_samples", max_eval_samples,
          About{.help = "evaluate at most this many blocks; absent: all", .min = 1});
    field("validation_split_percentage", validation_split_percentage,
          About{.help = "percent of the blocks held out; 0: none, or 5 when evaluation is on and "
                        "has no file",
                .min = 0,
                .max = 100,
                .max_is_allowed = false,
                .is_percentage = true});
    field("bad_lines", bad_lines,
          About{.help = "a line that is not UTF-8 or not JSON: stop, skip"});
    field("preprocessing_num_workers", preprocessing_num_workers,
          About{.help = "threads that tokenise; 0: all cores",
                .aliases = {"dataset_num_proc", "dataset_processes"},
                .min = 0});
    field("dataloader_drop_last", dataloader_drop_last,
          About{.help = "drop the last incomplete global batch of an epoch",
                .aliases = {"dataloader.drop_last", "drop_last"}});
    field("dataloader_num_workers", dataloader_num_workers,
          About{.help = "0: no thread reads ahead; more than 1 is as good as 1",
                .aliases = {"num_workers", "dataloader.num_workers"},
                .min = 0});
    field("dataloader_prefetch_factor", dataloader_prefetch_factor,
          About{.help = "steps that are read ahead",
                .aliases = {"prefetch_factor", "dataloader.prefetch_factor"},
                .min = 1});
    field("data_cache_dir", data_cache_dir,
          About{.help = "prepared data; empty: $XDG_CACHE_HOME/skein/data or ~/.cache/skein/data",
                .aliases = {"dataset_prepared_path"}});
    field("overwrite_cache", overwrite_cache, About{.help = "prepare the data again"});
  }
  bool operator==(const DataConfig&) const = default;
};

struct EvalConfig {
  EvalStrategy eval_strategy = EvalStrategy::kNo;
  double eval_steps = 0;  // below 1: a share of all steps; 0: logging_steps
  int64_t per_device_eval_batch_size = 8;
  bool eval_on_start = false;
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "loss";

  void fields(auto&& field) {
    field("eval_strategy", eval_strategy,
          About{.help = "evaluate: no, steps, epoch", .aliases = {"evaluation_strategy"}});
    field("eval_steps", eval_steps,
          About{.help = "updates between evaluations; below 1: a share of all; 0: logging_steps",
                .min = 0});
    field("per_device_eval_batch_size", per_device_eval_batch_size,
          About{.help = "blocks per rank and evaluation batch",
                .aliases = {"eval_batch_size"},
                .min = 1});
    field("eval_on_start", eval_on_start, About{.help = "also before the first update"});
    field("load_best_model_at_end", load_best_model_at_end,
          About{.help = "the final model is the one with the best evaluation"});
    field("metric_for_best_model", metric_for_best_model,
          About{.help = "what best means: loss", .choices = {"loss", "eval_loss"}});
  }
  bool operator==(const EvalConfig&) const = default;
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
  int64_t max_steps = -1;        // positive: wins over num_train_epochs
  double num_cycles = -1;        // cosines; -1: HF's, 1 for cosine_with_restarts, else 0.5
  double lr_end = 1e-7;          // polynomial
  double power = 1.0;            // polynomial
  double min_lr = 0;             // cosine_with_min_lr, nanogpt
  double min_lr_rate = 0;        // the same as a share of learning_rate; also warmup_stable_decay
  int64_t num_decay_steps = 0;   // warmup_stable_decay
  int64_t num_stable_steps = 0;  // warmup_stable_decay; 0: what the others leave
  Curve warmup_type = Curve::kLinear;  // warmup_stable_decay
  Curve decay_type = Curve::kCosine;   // warmup_stable_decay
  int64_t timescale = 0;               // inverse_sqrt; 0: the warm-up, or 10,000
  int64_t lr_decay_iters = 0;          // nanogpt: where the decay ends; 0: with the run
  LrScaling lr_scaling = LrScaling::kNone;
  int64_t lr_scaling_base_batch = 0;  // 0: per device x accumulation, that is, scale by the ranks

  void fields(auto&& field) {
    field("lr_scheduler_type", lr_scheduler_type,
          About{.help = "constant, constant_with_warmup, linear, cosine, cosine_with_restarts, "
                        "polynomial, inverse_sqrt, cosine_with_min_lr, warmup_stable_decay, "
                        "nanogpt",
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
    cosine_fields(field);
    other_shape_fields(field);
    field("lr_scaling", lr_scaling,
          About{.help = "multiply the learning rate as the batch grows: none, linear, sqrt"});
    field(
        "lr_scaling_base_batch", lr_scaling_base_batch,
        About{.help = "the batch that learning_rate is meant for; 0: that of one rank", .min = 0});
  }
  bool operator==(const ScheduleConfig&) const = default;

 private:
  void cosine_fields(auto&& field) {
    field("num_cycles", num_cycles,
          About{.help = "cosines: waves; -1: 1 with restarts, else 0.5",
                .aliases = {"lr_scheduler_kwargs.num_cycles"},
                .min = -1});
    field("min_lr", min_lr,
          About{.help = "cosine_with_min_lr, nanogpt: the last learning rate",
                .aliases = {"lr_scheduler_kwargs.min_lr"},
                .min = 0});
    field("min_lr_rate", min_lr_rate,
          About{.help = "the same as a share of learning_rate; also warmup_stable_decay",
                .aliases = {"lr_scheduler_kwargs.min_lr_rate", "lr_scheduler_kwargs.min_lr_ratio",
                            "cosine_min_lr_ratio"},
                .min = 0,
                .max = 1});
    field("lr_decay_iters", lr_decay_iters,
          About{.help = "nanogpt: update at which min_lr is reached; 0: the last",
                .aliases = {"lr_scheduler_kwargs.lr_decay_iters"},
                .min = 0});
  }
  void other_shape_fields(auto&& field) {
    field("lr_end", lr_end,
          About{.help = "polynomial: the last learning rate",
                .aliases = {"lr_scheduler_kwargs.lr_end"},
                .min = 0});
    field("power", power,
          About{.help = "polynomial: exponent", .aliases = {"lr_scheduler_kwargs.power"}});
    field("num_decay_steps", num_decay_steps,
          About{.help = "warmup_stable_decay: updates of the fall",
                .aliases = {"lr_scheduler_kwargs.num_decay_steps"},
                .min = 0});
    field("num_stable_steps", num_stable_steps,
          About{.help = "warmup_stable_decay: updates at the peak; 0: what the others leave",
                .aliases = {"lr_scheduler_kwargs.num_stable_steps"},
                .min = 0});
    field("warmup_type", warmup_type,
          About{.help = "warmup_stable_decay: linear, cosine, 1-sqrt",
                .aliases = {"lr_scheduler_kwargs.warmup_type"}});
    field("decay_type", decay_type,
          About{.help = "warmup_stable_decay: linear, cosine, 1-sqrt",
                .aliases = {"lr_scheduler_kwargs.decay_type"}});
    field("timescale", timescale,
          About{.help = "inverse_sqrt: updates; 0: those of the warm-up, or 10000",
                .aliases = {"lr_scheduler_kwargs.timescale"},
                .min = 0});
  }
};

struct ParallelConfig {
  Strategy distributed_strategy = Strategy::kAuto;  // auto = ddp
  Device device = Device::kAuto;
  std::string ddp_backend = "auto";  // gloo, nccl, auto: nccl on GPUs, gloo on CPUs
  int64_t ddp_timeout = 1800;  // seconds a collective may take before the run ends with exit code 3
  int64_t heartbeat_timeout = 4;  // seconds a stopped or frozen rank is waited for; 0: for ever
  int64_t join_timeout = 120;     // seconds all ranks have to join
  bool distributed = true;        // false: one rank, no group

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
    field("heartbeat_timeout", heartbeat_timeout,
          About{.help = "seconds a stopped rank is waited for; 0: no heartbeats", .min = 0});
    field("join_timeout", join_timeout,
          About{.help = "seconds all ranks have to join the run", .min = 1});
    field("distributed", distributed,
          About{.help = "false: one rank, no group", .aliases = {"ddp", "use_ddp"}});
  }
  bool operator==(const ParallelConfig&) const = default;
};

struct CheckpointConfig {
  std::string output_dir;
  std::string experiment_name;  // without output_dir: outputs/<experiment_name>
  SaveStrategy save_strategy = SaveStrategy::kSteps;
  double save_steps = 500;  // below 1: a share of all steps
  std::optional<int64_t> save_total_limit;
  bool save_only_model = false;  // checkpoints without optimizer state cannot be continued
  // output_dir is a folder of its own on every node, each of which writes whole checkpoints. Only
  // with ddp: all state is on every node.
  bool save_on_each_node = false;
  // "auto": the newest in output_dir (also written true, latest); "false": do not continue, and
  // refuse a folder that has checkpoints; anything else: that checkpoint's folder.
  std::string resume_from_checkpoint = "auto";
  bool fresh = false;  // --fresh: start over instead of continuing a started run

  void fields(auto&& field) {
    field("output_dir", output_dir, About{.help = "the run's folder", .aliases = {"output_path"}});
    field("experiment_name", experiment_name,
          About{.help = "without output_dir: outputs/<experiment_name>; empty: run_name"});
    field("save_strategy", save_strategy, About{.help = "save: no, steps, epoch"});
    field("save_steps", save_steps,
          About{.help = "updates between checkpoints; below 1: a share of all",
                .min = 0,
                .min_is_allowed = false});
    field("save_total_limit", save_total_limit,
          About{.help = "checkpoints to keep; absent: all", .min = 1});
    field("save_only_model", save_only_model,
          About{.help = "checkpoints without optimizer state, which cannot be continued"});
    field("save_on_each_node", save_on_each_node,
          About{.help = "output_dir is not shared: every node saves all by itself; ddp only"});
    field("resume_from_checkpoint", resume_from_checkpoint,
          About{.help = "auto (true, latest): the newest in output_dir; false: none; or a "
                        "checkpoint's folder",
                .saved = false});
    field("fresh", fresh,
          About{.help = "start over instead of continuing a started run", .saved = false});
  }
  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  double logging_steps = 500;  // below 1: a share of all steps
  bool logging_first_step = false;
  std::vector<std::string> report_to = {"tensorboard"};  // empty: none
  std::string run_name;                                  // empty: experiment_name
  bool disable_tqdm = false;
  double loss_spike_zscore = 6;  // 0: off

  void fields(auto&& field) {
    field("logging_steps", logging_steps,
          About{.help = "updates between log lines; below 1: a share of all",
                .min = 0,
                .min_is_allowed = false});
    field("logging_first_step", logging_first_step, About{.help = "also log the first update"});
    field("report_to", report_to,
          About{.help = "none, all, tensorboard, wandb, or a list of them",
                .choices = {"tensorboard", "wandb"},
                .not_built = {"mlflow", "comet_ml", "neptune", "clearml", "dvclive", "codecarbon",
                              "azure_ml", "swanlab", "trackio", "dagshub", "flyte"}});
    field("run_name", run_name,
          About{.help = "name in the logs; empty: experiment_name", .aliases = {"wandb_name"}});
    field("disable_tqdm", disable_tqdm, About{.help = "plain lines instead of the live line"});
    field("loss_spike_zscore", loss_spike_zscore,
          About{.help = "warn when a loss lies this many deviations above the mean; 0: never",
                .min = 0});
  }
  bool operator==(const LogConfig&) const = default;
};

struct RunConfig {
  TrainingStage stage = TrainingStage::kPretrain;
  int64_t seed = 42;
  std::optional<int64_t> data_seed;  // absent: seed
  bool full_determinism = false;     // bit-exact on GPUs too, with slower kernels

  ModelConfig model;
  DataConfig data;
  EvalConfig eval;
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
    eval.fields(field);
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
