// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/deepspeed_keys.h"

#include <algorithm>

namespace skein::config {
namespace {

using Rule = KeyRule;
using Status = Rule::Status;
constexpr auto kHonoured = Status::kHonoured;
constexpr auto kEmulated = Status::kEmulated;
constexpr auto kNoEffect = Status::kNoEffect;
constexpr auto kRefused = Status::kRefused;

const std::vector<std::string_view> kFalse = {"false"};

constexpr std::string_view kUnits = "one block of the model travels at a time";
constexpr std::string_view kOnlyOffload = "buffers are sized by themselves";

std::vector<Rule> honoured_rules() {
  return {
      {"train_batch_size", kHonoured, "global_batch_size"},
      {"train_micro_batch_size_per_gpu", kHonoured, "per_device_train_batch_size"},
      {"gradient_accumulation_steps", kHonoured, "gradient_accumulation_steps"},
      {"gradient_clipping", kHonoured, "max_grad_norm"},
      {"zero_optimization.stage", kHonoured, ""},
      {"bf16.enabled", kHonoured, ""},
      {"bfloat16.enabled", kHonoured, ""},
      {"optimizer.type", kHonoured, ""},
      {"optimizer.params.lr", kHonoured, ""},
      {"optimizer.params.betas", kHonoured, ""},
      {"optimizer.params.eps", kHonoured, "adam_epsilon"},
      {"optimizer.params.weight_decay", kHonoured, "weight_decay"},
      {"data_types.grad_accum_dtype", kHonoured, ""},
      {"dataloader_drop_last", kHonoured, "dataloader_drop_last"},
      {"steps_per_print", kHonoured, ""},
      {"scheduler.type", kHonoured, ""},
      {"scheduler.params.*", kHonoured, ""},
      {"zero_optimization.offload_optimizer.device", kHonoured, "offload_optimizer"},
      {"zero_optimization.offload_param.device", kHonoured, "offload_param"},
      {"zero_optimization.offload_optimizer.ratio", kHonoured, "offload_ratio"},
      {"zero_optimization.offload_optimizer.pin_memory", kHonoured, "offload_pin_memory"},
      {"zero_optimization.offload_param.pin_memory", kEmulated, "offload_pin_memory is for both"},
      {"zero_optimization.offload_optimizer.nvme_path", kHonoured, ""},
      {"zero_optimization.offload_param.nvme_path", kHonoured, ""},
      {"aio.block_size", kHonoured, "nvme_block_size"},
      {"aio.queue_depth", kHonoured, "nvme_queue_depth"},
      {"aio.thread_count", kHonoured, "nvme_threads"},
      {"aio.intra_op_parallelism", kHonoured, "nvme_threads"},
      {"zero_optimization.cpu_offload", kHonoured, ""},
      {"zero_optimization.cpu_offload_params", kHonoured, ""},
      {"fp16.enabled", kHonoured, ""},
      {"fp16.loss_scale", kHonoured, "loss_scale"},
      {"fp16.initial_scale_power", kHonoured, "initial_scale_power"},
      {"fp16.loss_scale_window", kHonoured, "loss_scale_window"},
      {"fp16.hysteresis", kHonoured, "hysteresis"},
      {"fp16.consecutive_hysteresis", kHonoured, "consecutive_hysteresis"},
      {"fp16.min_loss_scale", kHonoured, "min_loss_scale"},
      {"activation_checkpointing.partition_activations", kHonoured, ""},
      {"activation_checkpointing.cpu_checkpointing", kHonoured, ""},
      {"activation_checkpointing.contiguous_memory_optimization", kHonoured, ""},
      {"activation_checkpointing.number_checkpoints", kHonoured, ""},
      {"tensorboard.enabled", kHonoured, ""},
      {"wandb.enabled", kHonoured, ""},
      {"flops_profiler.enabled", kHonoured, ""},
      {"flops_profiler.profile_step", kHonoured, ""},
      {"wall_clock_breakdown", kHonoured, ""},
  };
}

std::vector<Rule> zero_rules() {
  return {
      {"zero_optimization.contiguous_gradients", kEmulated, "gradients are one flat buffer"},
      {"zero_optimization.reduce_scatter", kEmulated, "stages 2 and 3 reduce to the owner"},
      {"zero_optimization.allgather_partitions", kEmulated, "shards are gathered"},
      {"zero_optimization.overlap_comm", kEmulated, "the next block is gathered ahead"},
      {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kEmulated,
       "every checkpoint is a complete model"},
      {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kEmulated,
       "every checkpoint is a complete model"},
      {"zero_optimization.elastic_checkpoint", kEmulated, "any world size loads any checkpoint"},
      {"zero_optimization.load_from_fp32_weights", kEmulated, "the master is in the checkpoint"},
      {"zero_optimization.ignore_unused_parameters", kEmulated, "unused parameters are handled"},
      {"zero_optimization.reduce_bucket_size", kNoEffect, kUnits},
      {"zero_optimization.allgather_bucket_size", kNoEffect, kUnits},
      {"zero_optimization.use_multi_rank_bucket_allreduce", kNoEffect, kUnits},
      {"zero_optimization.round_robin_gradients", kNoEffect, kUnits},
      {"zero_optimization.sub_group_size", kNoEffect, kUnits},
      {"zero_optimization.stage3_prefetch_bucket_size", kNoEffect, kUnits},
      {"zero_optimization.stage3_param_persistence_threshold", kNoEffect, kUnits},
      {"zero_optimization.stage3_model_persistence_threshold", kNoEffect, kUnits},
      {"zero_optimization.stage3_max_live_parameters", kNoEffect, kUnits},
      {"zero_optimization.stage3_max_reuse_distance", kNoEffect, kUnits},
      {"zero_optimization.stage3_module_granularity_threshold", kNoEffect, kUnits},
      {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kNoEffect, kUnits},
      {"zero_optimization.stage3_allgather_sequential", kNoEffect, kUnits},
      {"zero_optimization.memory_efficient_linear", kNoEffect, "the models hold no extra copy"},
      {"zero_optimization.override_module_apply", kNoEffect, "there are no torch modules"},
      {"zero_optimization.offload_optimizer.*", kNoEffect, kOnlyOffload},
      {"zero_optimization.offload_param.*", kNoEffect, kOnlyOffload},
      {"zero_optimization.cpu_offload_use_pin_memory", kNoEffect, kOnlyOffload},
      {"zero_optimization.zero_hpz_partition_size", kRefused, "ZeRO++; set it to 1", {"1"}},
      {"zero_optimization.zero_quantized_weights", kRefused, "ZeRO++", kFalse},
      {"zero_optimization.zero_quantized_nontrainable_weights", kRefused, "ZeRO++", kFalse},
      {"zero_optimization.zero_quantized_gradients", kRefused, "ZeRO++", kFalse},
      {"zero_optimization.zeropp_loco_param*", kRefused, "ZeRO++"},
      {"zero_optimization.mics_shard_size", kRefused, "MiCS; set it to -1", {"-1"}},
      {"zero_optimization.mics_hierarchical_params_gather", kRefused, "MiCS", kFalse},
  };
}

std::vector<Rule> numeric_rules() {
  return {
      {"fp16.auto_cast", kNoEffect, "the weights are float16 already"},
      {"fp16.fp16_master_weights_and_grads", kRefused, "the master is fp32", kFalse},
      {"bf16.immediate_grad_update", kNoEffect, "gradients are added where they lie"},
      {"bf16.check_grad_overflow", kEmulated, "nan_policy decides"},
      {"bf16.bf16_master_weights_and_grads", kRefused, "the master is fp32", kFalse},
      {"bf16.bf16_optimizer_states", kRefused, "states are fp32", kFalse},
      {"optimizer.params.adam_w_mode", kNoEffect, "decay is decoupled"},
      {"optimizer.params.bias_correction", kRefused, "it is always on", {"true"}},
      {"optimizer.params.amsgrad", kRefused, "it is always off", kFalse},
      {"optimizer.params.max_grad_norm", kRefused, "use gradient_clipping"},
      {"optimizer.params.torch_adam", kNoEffect, "there is one AdamW"},
      {"optimizer.params.fused", kNoEffect, "there is one AdamW"},
      {"optimizer.legacy_fusion", kNoEffect, "there is one AdamW"},
      {"communication_data_type", kEmulated, "sums are formed in fp32 and rounded once"},
      {"prescale_gradients", kNoEffect, "sums are formed in fp32 and rounded once"},
      {"gradient_predivide_factor", kNoEffect, "sums are formed in fp32 and rounded once"},
      {"gradient_allreduce_op", kRefused, "gradients are averaged over tokens", {"mean"}},
      {"zero_allow_untested_optimizer", kNoEffect, "AdamW is tested"},
      {"zero_force_ds_cpu_optimizer", kNoEffect, kOnlyOffload},
      {"sparse_gradients", kRefused, "gradients are dense", kFalse},
  };
}

std::vector<Rule> other_rules() {
  constexpr std::string_view kLogs = "trainer_log.jsonl has the numbers";
  return {
      {"activation_checkpointing.*", kNoEffect, "whole blocks are recomputed"},
      {"memory_breakdown", kEmulated, "every record has the peak; skein plan has the parts"},
      {"dump_state", kNoEffect, "skein config show prints the configuration"},
      {"log_level", kNoEffect, kLogs},
      {"comms_logger.*", kNoEffect, kLogs},
      {"flops_profiler.*", kNoEffect, "the table has one form, and lies in output_dir"},
      {"tensorboard.*", kNoEffect, "logs lie in output_dir; run_name names the run"},
      {"wandb.*", kNoEffect, "set WANDB_PROJECT and the like in the environment"},
      {"csv_monitor.*", kNoEffect, kLogs},
      {"comet.*", kNoEffect, kLogs},
      {"monitor_config.*", kNoEffect, kLogs},
      {"aio.single_submit", kNoEffect, "requests are handed on as there is room for them"},
      {"aio.overlap_events", kNoEffect, "requests are handed on as there is room for them"},
      {"aio.use_gds", kNoEffect, "what lies on a disk passes through host memory"},
      {"checkpoint.*", kNoEffect, "checkpoints have skein's own form"},
      {"amp.enabled", kRefused, "use bf16.enabled: true", kFalse},
      {"amp.*", kNoEffect, "only with amp"},
      {"autotuning.enabled", kRefused, "set the values yourself", kFalse},
      {"autotuning.*", kNoEffect, "only with autotuning"},
      {"elasticity.enabled", kRefused, "give the batch sizes", kFalse},
      {"elasticity.*", kNoEffect, "only with elasticity"},
      {"hybrid_engine.enabled", kRefused, "remove the section", kFalse},
      {"hybrid_engine.*", kNoEffect, "only with the hybrid engine"},
      {"sparse_attention*", kRefused, "attention is exact"},
      {"compression_training*", kRefused, "remove the section"},
      {"curriculum_learning.enabled", kRefused, "remove the section", kFalse},
      {"curriculum_learning.*", kNoEffect, "only with curriculum learning"},
      {"data_efficiency.enabled", kRefused, "remove the section", kFalse},
      {"data_efficiency.*", kNoEffect, "only with data efficiency"},
      {"pipeline*", kRefused, "there is no pipeline parallelism"},
  };
}

const std::vector<Rule>& table() {
  static const auto kTable = [] {
    std::vector<Rule> all;
    for (auto* part : {&honoured_rules, &zero_rules, &numeric_rules, &other_rules}) {
      for (auto& rule : part()) all.push_back(std::move(rule));
    }
    return all;
  }();
  return kTable;
}

bool matches(const Rule& rule, std::string_view path) {
  if (rule.matches(path)) return true;
  constexpr std::string_view kSection = "zero_optimization.", kPrefix = "zero_optimization.stage3_";
  return rule.key.starts_with(kPrefix) && path.starts_with(kSection) &&
         rule.key.substr(kPrefix.size()) == path.substr(kSection.size());
}

}  // namespace

const Rule* find_deepspeed_rule(std::string_view path) {
  const auto& rules = table();
  const auto found = std::ranges::find_if(rules, [&](const auto& r) { return matches(r, path); });
  return found == rules.end() ? nullptr : &*found;
}

bool is_deepspeed_section(std::string_view path) {
  return std::ranges::any_of(table(), [&](const Rule& rule) {
    return rule.key.size() > path.size() && rule.key.starts_with(path) &&
           rule.key[path.size()] == '.';
  });
}

std::vector<std::string> deepspeed_key_names() {
  std::vector<std::string> names;
  for (const auto& rule : table()) {
    if (!rule.key.ends_with('*')) names.emplace_back(rule.key);
  }
  return names;
}

}  // namespace skein::config
