// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/known_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

using Status = KeyRule::Status;
using Off = std::vector<std::string_view>;

const Off kFalse = {"false"};
const Off kNone = {"none", "false"};
const Off kZero = {"0"};

constexpr std::string_view kOneBucketPerUnit = "gradients travel one block at a time";
constexpr std::string_view kOwnLoader = "the loader reads blocks ahead by itself";
constexpr std::string_view kNoPadding = "always so: rows lie behind each other without padding";
constexpr std::string_view kFastAttention = "always so: the fastest exact attention is chosen";
constexpr std::string_view kOwnRollout =
    "answers are written in this program, from the very weights that train";
constexpr std::string_view kOwnTokens =
    "nothing is padded, the tokenizer's own tokens count (tokenizer_config.json), and what ends a "
    "turn is found in the template; new_special_tokens adds tokens";

std::vector<KeyRule> no_effect_keys() {
  constexpr auto kNo = Status::kNoEffect;
  return {
      {"gradient_as_bucket_view", kNo, "gradients always live in one flat buffer"},
      {"set_to_none", kNo, "gradients always live in one flat buffer"},
      {"ddp_bucket_cap_mb", kNo, kOneBucketPerUnit},
      {"bucket_cap_mb", kNo, kOneBucketPerUnit},
      {"ddp_find_unused_parameters", kNo, "unused parameters are always handled"},
      {"find_unused_parameters", kNo, "unused parameters are always handled"},
      {"ddp_broadcast_buffers", kNo, "the models have no buffers that change"},
      {"pin_memory", kNo, kOwnLoader},
      {"persistent_workers", kNo, kOwnLoader},
      {"dataloader_pin_memory", kNo, kOwnLoader},
      {"dataloader_persistent_workers", kNo, kOwnLoader},
      {"dataloader.pin_memory", kNo, kOwnLoader},
      {"dataloader.persistent_workers", kNo, kOwnLoader},
      {"overwrite_output_dir", kNo, "a started run continues; --fresh starts over"},
      {"save_safetensors", kNo, "every tensor is written as safetensors"},
      {"logging_dir", kNo, "logs lie in output_dir"},
      {"logging_nan_inf_filter", kNo, "nan_policy decides"},
      {"average_tokens_across_devices", kNo, "the loss is always averaged over all ranks' tokens"},
      {"gradient_checkpointing_kwargs.use_reentrant", kNo, "there is one kind of recompute"},
      {"do_train", kNo, "the subcommand decides"},
      {"do_predict", kNo, "the subcommand decides"},
      {"include_num_input_tokens_seen", kNo, "tokens are always counted"},
      {"include_tokens_per_second", kNo, "tokens per second are always logged"},
      {"skip_memory_metrics", kNo, "memory is always logged"},
      {"log_level", kNo, "rank 0 reports, every rank warns"},
      {"log_level_replica", kNo, "rank 0 reports, every rank warns"},
      {"log_on_each_node", kNo, "rank 0 reports, every rank warns"},
      {"remove_unused_columns", kNo, "only \"text\" is read"},
      {"prediction_loss_only", kNo, "evaluation computes the loss"},
      {"eval_accumulation_steps", kNo, "evaluation keeps no logits"},
      {"bf16_full_eval", kNo, "evaluation uses the working weights"},
      {"fp16_full_eval", kNo, "evaluation uses the working weights"},
      {"torch_empty_cache_steps", kNo, "memory is planned ahead"},
      {"low_cpu_mem_usage", kNo, "no rank ever holds a second copy"},
      {"padding_free", kNo, kNoPadding},
      {"pad_to_sequence_len", kNo, kNoPadding},
      {"pad_token", kNo, kNoPadding},
      {"special_tokens*", kNo, kOwnTokens},
      {"eos_token", kNo, kOwnTokens},
      {"flash_attn", kNo, kFastAttention},
      {"flash_attention", kNo, kFastAttention},
      {"attn_implementation", kNo, kFastAttention},
      {"use_liger_kernel", kNo,
       "always so: kernels are fused, and the loss never holds all logits"},
      {"enable_liger_kernel", kNo,
       "always so: kernels are fused, and the loss never holds all logits"},
      {"fp16_backend", kNo, "there is one kind of mixed precision: dtype"},
      {"half_precision_backend", kNo, "there is one kind of mixed precision: dtype"},
      {"bnb_4bit_compute_dtype", kNo, "products are computed in dtype"},
      {"trust_remote_code", kNo, "no code of a model folder is ever run"},
      {"use_fast_tokenizer", kNo, "there is one tokenizer"},
      {"model_type", kNo, "config.json says what the model is"},
      {"tokenizer_type", kNo, "tokenizer.json says what it is"},
      {"strict", kNo, "a key that is not known is always refused"},
      {"compute_accuracy", kNo, "evaluation computes the loss"},
      {"plot_loss", kNo, "training_loss.svg is always drawn"},
      {"local_rank", kNo, "the launcher tells each rank its number"},
      {"use_torchrun", kNo, "skein starts its own ranks"},
  };
}

// Under their long names (launch/placement/launch_flags.h). The command line's never come here.
std::vector<KeyRule> launch_keys() {
  std::vector<KeyRule> keys;
  for (const auto* key : {"nproc_per_node", "num_gpus", "nnodes", "num_nodes", "node_rank",
                          "master_addr", "master_port", "rdzv_endpoint", "max_restarts", "log_dir",
                          "hostfile", "include", "exclude", "ssh_port", "secret_file"}) {
    keys.push_back({key, Status::kLaunchFlag, "a launch flag"});
  }
  return keys;
}

std::vector<KeyRule> precision_keys() {
  constexpr auto kNot = Status::kRefused;
  return {
      {"tf32", kNot, "float32 products are exact; bf16: true is faster", kFalse},
      {"fp8", kNot, "use bf16: true", kFalse},
      {"torch_compile", kNot, "kernels are fused by hand", kFalse},
      {"load_in_8bit", kNot, "", kFalse},
      {"bnb_4bit_quant_type", kNot, "4-bit weights are NF4", {"nf4"}},
      {"quantization_config*", kNot, "use quantization_bit: 4", kNone},
      {"upcast_layernorm", kNot, "", kFalse},
      {"use_unsloth*", kNot,
       "kernels are fused by hand; gradient_checkpointing: offload has its "
       "memory",
       kFalse},
      {"quantization_type", kNot, "4-bit weights are NF4", {"nf4"}},
      {"quantization_method", kNot, "4-bit weights are bitsandbytes' NF4", {"bnb", "bitsandbytes"}},
  };
}

std::vector<KeyRule> algorithm_keys() {
  constexpr auto kNo = Status::kNoEffect, kNot = Status::kRefused;
  return {
      {"lora_bias", kNot, "adapters have no biases", {"none"}},
      {"bias", kNot, "adapters have no biases", {"none"}},
      {"create_new_adapter", kNot,
       "`skein merge ADAPTER --out DIR` first, then model_name_or_path: DIR without "
       "adapter_name_or_path",
       kFalse},
      {"lora_*", kNot, ""},
      {"loraplus_*", kNot, ""},
      {"pissa_*", kNot, "", kFalse},
      {"freeze_*", kNot, "", kFalse},
      {"use_galore", kNot, "optim: adamw_8bit or finetuning_type: lora need less memory", kFalse},
      {"galore_*", kNot, "optim: adamw_8bit or finetuning_type: lora need less memory"},
      {"use_badam", kNot, "finetuning_type: freeze or lora trains a part", kFalse},
      {"badam_*", kNot, "finetuning_type: freeze or lora trains a part"},
      {"pref_*", kNot, ""},
      {"trl.*", kNot, "", kNone},
      {"use_vllm", kNo, kOwnRollout},
      {"vllm_*", kNo, kOwnRollout},
      {"use_transformers_paged", kNo, kOwnRollout},
      {"cache_implementation", kNo, kOwnRollout},
      {"local_rollout_forward_batch_size", kNo, kOwnRollout},
      {"log_completions", kNo, "completions are always logged"},
      {"num_completions_to_print", kNo, "completions are always logged"},
      {"num_sample_generations", kNo, "completions are always logged"},
      {"use_liger_loss", kNo, "the loss never holds all logits"},
      {"use_bias_correction_kl", kNot, "", kFalse},
      {"off_policy_mask_threshold", kNot, "", kNone},
      {"top_entropy_quantile", kNot, "", {"1"}},
      {"shuffle_dataset", kNot, "prompts are always shuffled", {"true"}},
      {"generation_kwargs*", kNot, "give temperature, top_k, top_p, min_p", kNone},
      {"stop_token", kNot, "the end tokens of the model end an answer; use stop", {"eos", "none"}},
      {"stop_token_id", kNot, "the end tokens of the model end an answer; use stop", kNone},
      {"normalize_advantages", kNot, "", kFalse},
      {"reward_clip_range", kNot, "use reward_clip", kNone},
      {"reward_model_type",
       kNot,
       "give reward_model the folder that stage: rm wrote, or reward_program a command that asks "
       "a server",
       {"full"}},
      {"reward_model_*", kNot, "reward_model takes the folder that stage: rm wrote", kNone},
      {"rollout_batch_size", kNot, "use num_mini_batches"},
      {"micro_rollout_batch_size", kNo, kOwnRollout},
      {"max_tool_calling_iterations", kNot, "", kNone},
      {"gamma_beta_ratio", kNot, "use simpo_gamma: this ratio times pref_beta", kNone},
      {"reference_free", kNot, "pref_loss: simpo or orpo needs no reference", kFalse},
      {"sync_ref_model", kNot, "the reference stays as it is", kFalse},
      {"ref_model_mixup_alpha", kNo, "the reference stays as it is"},
      {"ref_model_sync_steps", kNo, "the reference stays as it is"},
      {"use_weighting", kNot, "", kFalse},
      {"generate_during_eval", kNot, "`skein generate` asks a checkpoint", kFalse},
      {"ref_model_adapters", kNot, "`skein merge` it, and give the folder as ref_model", kNone},
      {"ref_model_quantization_bit", kNot, "", kNone},
      {"precompute_ref_batch_size", kNo, "per_device_eval_batch_size is taken"},
      {"force_use_ref_model", kNo, "ref_model says which reference it is"},
      {"disable_dropout", kNo, "config.json and lora_dropout say how much is dropped"},
      {"unfrozen_parameters", kNot, "", kNone},
      {"ppo_*", kNot, ""},
      {"gradient_projection_dimension", kNot, ""},
      {"gradient_type", kNot, ""},
      {"optim_args", kNot, "", kNone},
      {"lr_scheduler_kwargs", kNot, "it takes an object", {"none", "{}"}},
      {"lr_scheduler_kwargs.*", kNot, "no schedule of this version has it"},
      {"fsdp", kNot, "use distributed_strategy: zero3", {"", "false", "none"}},
      {"fsdp_config*", kNot, "use distributed_strategy: zero3", kNone},
      {"accelerator_config*", kNot, "", kNone},
  };
}

// Keys of DeepSpeed's file, which has a place of its own.
std::vector<KeyRule> deepspeed_keys() {
  constexpr auto kNot = Status::kRefused;
  return {
      {"zero_optimization*", kNot,
       "use distributed_strategy: zero2, or give DeepSpeed's file, deepspeed: FILE.json"},
      {"zero_stage", kNot, "use distributed_strategy: ddp, zero1, zero2 or zero3"},
      {"cpu_offload", kNot, "use offload_optimizer: cpu", kFalse},
      {"steps_per_print", kNot, "use logging_steps"},
      {"wall_clock_breakdown", kNot, "use profile_steps: 2", kFalse},
      {"flops_profiler*", kNot, "use profile_steps: 2", kFalse},
  };
}

std::vector<KeyRule> data_keys() {
  constexpr auto kNot = Status::kRefused;
  constexpr std::string_view kTrainFile = "use train_file";
  constexpr std::string_view kRenamed =
      "columns have fixed names (docs/data.md): rename it in the data";
  constexpr std::string_view kVariables =
      "in a copy of the template write {% set NAME = VALUE %} first, and give chat_template: FILE";
  return {
      {"dataset_text_field", kNot, "rename it in the data: a text is called \"text\"", {"text"}},
      {"chosen_key", kNot, kRenamed, {"chosen"}},
      {"rejected_key", kNot, kRenamed, {"rejected"}},
      {"prompt_key", kNot, kRenamed, {"prompt", "none"}},
      {"input_key", kNot, kRenamed, {"prompt", "messages", "conversations"}},
      {"output_key", kNot, kRenamed, {"completion", "output", "none"}},
      {"label_key", kNot, kRenamed, {"label", "none"}},
      {"truncation_mode",
       kNot,
       "rows that are too long lose their end; excess_length_strategy: drop leaves them out",
       {"keep_start"}},
      {"default_system",
       kNot,
       "begin the rows with a message {\"role\": \"system\"}",
       {"none", ""}},
      {"chat_template_kwargs", kNot, kVariables, {"none", "{}"}},
      {"chat_template_kwargs.*", kNot, kVariables},
      // What templates do where nobody says otherwise.
      {"enable_thinking", kNot, kVariables, {"true", "none"}},
      {"dataset", kNot, kTrainFile, kNone},
      {"datasets", kNot, kTrainFile},
      {"test_datasets", kNot, "use eval_file"},
      {"tokenized_path", kNot, "use data_cache_dir", kNone},
      {"packing_strategy", kNot, "rows are packed by best fit", {"bfd"}},
      {"dataset_dir", kNot, kTrainFile},
      {"dataset_name", kNot, kTrainFile, kNone},
      {"dataset_config*", kNot, kTrainFile, kNone},
      {"streaming", kNot, "", kFalse},
      {"image_*", kNot, ""},
      {"media_dir", kNot, "", kNone},
  };
}

std::vector<KeyRule> run_keys() {
  constexpr auto kNot = Status::kRefused;
  return {
      {"use_mlflow", kNot, "", kFalse},
      {"wandb_*", kNot, "set WANDB_PROJECT and the like in the environment", kNone},
      {"eval_dataset", kNot, "use eval_file", kNone},
      {"eval_*", kNot, "", kNone},
      {"evals_per_epoch", kNot, "use eval_steps, or eval_strategy: epoch", kZero},
      {"saves_per_epoch", kNot, "use save_steps, or save_strategy: epoch"},
      {"predict_with_generate", kNot, "", kFalse},
      {"logging_strategy", kNot, "use logging_steps", {"steps"}},
      {"ignore_data_skip", kNot, "", kFalse},
      {"push_to_hub*", kNot, "", kNone},
      {"hub_*", kNot, "", kNone},
      {"mode", kNot, "each has its own subcommand", {"train"}},
  };
}

}  // namespace

const std::vector<KeyRule>& known_keys() {
  static const auto kTable = [] {
    std::vector<KeyRule> all;
    for (auto* part : {&no_effect_keys, &launch_keys, &precision_keys, &algorithm_keys,
                       &deepspeed_keys, &data_keys, &run_keys}) {
      for (auto& key : part()) all.push_back(std::move(key));
    }
    return all;
  }();
  return kTable;
}

const KeyRule* find_known_key(std::string_view key) {
  const auto& keys = known_keys();
  const auto found = std::ranges::find_if(keys, [&](const auto& k) { return k.matches(key); });
  return found == keys.end() ? nullptr : &*found;
}

bool is_flag(const KeyRule& rule) {
  return rule.key == "use_torchrun" || rule.key == "use_vllm" || rule.key == "do_train" ||
         rule.key == "overwrite_output_dir" || (!rule.off.empty() && rule.off[0] == "false");
}

std::string check_known_key(const KeyRule& rule, const Setting& setting) {
  if (rule.status == Status::kNoEffect) {
    return fmt::format("{}: '{}' has no effect: {}", setting.origin.place(), setting.key,
                       rule.detail);
  }
  if (rule.status == Status::kLaunchFlag) {
    auto flag = setting.key;
    std::ranges::replace(flag, '_', '-');
    refuse(setting.origin, fmt::format("'{}' is a launch flag: give --{} {} on the command line",
                                       setting.key, flag, setting.value.shown()));
  }
  if (rule.is_off(setting.value)) return "";
  if (is_null(setting.value)) return "";
  const auto hint = rule.detail.empty() ? std::string() : fmt::format(" ({})", rule.detail);
  refuse(setting.origin,
         fmt::format("'{}' is a known key, but this version does not support it{}; remove it{}",
                     setting.key, hint,
                     rule.off.empty() ? "" : fmt::format(" or set it to '{}'", rule.off[0])));
}

}  // namespace skein::config
