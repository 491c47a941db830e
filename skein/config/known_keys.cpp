// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/known_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/config/values.h"

namespace skein::config {
namespace {

using Status = KnownKey::Status;
using Off = std::vector<std::string_view>;

const Off kFalse = {"false"};
const Off kNone = {"none", "false"};
const Off kZero = {"0"};

constexpr std::string_view kOneBucketPerUnit = "gradients travel one block at a time";
constexpr std::string_view kOwnLoader = "the loader reads blocks ahead by itself";

std::vector<KnownKey> no_effect_keys() {
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
      {"num_workers", kNo, kOwnLoader},
      {"prefetch_factor", kNo, kOwnLoader},
      {"persistent_workers", kNo, kOwnLoader},
      {"dataloader_pin_memory", kNo, kOwnLoader},
      {"dataloader_num_workers", kNo, kOwnLoader},
      {"dataloader_prefetch_factor", kNo, kOwnLoader},
      {"dataloader_persistent_workers", kNo, kOwnLoader},
      {"dataloader.pin_memory", kNo, kOwnLoader},
      {"dataloader.num_workers", kNo, kOwnLoader},
      {"dataloader.prefetch_factor", kNo, kOwnLoader},
      {"dataloader.persistent_workers", kNo, kOwnLoader},
      {"preprocessing_num_workers", kNo, kOwnLoader},
      {"overwrite_output_dir", kNo, "a started run continues; --fresh starts over"},
      {"save_safetensors", kNo, "every tensor is written as safetensors"},
      {"logging_dir", kNo, "logs lie in output_dir"},
      {"logging_nan_inf_filter", kNo, "nan_policy decides"},
      {"average_tokens_across_devices", kNo, "the loss is always averaged over all ranks' tokens"},
      {"gradient_checkpointing_kwargs.use_reentrant", kNo, "there is one kind of recompute"},
      {"per_device_eval_batch_size", kNo, "this version does not evaluate while training"},
      {"do_train", kNo, "the subcommand decides"},
      {"plot_loss", kNo, "the losses are in trainer_log.jsonl"},
      {"overwrite_cache", kNo, "nothing is cached"},
      {"local_rank", kNo, "the launcher tells each rank its number"},
      {"use_torchrun", kNo, "skein starts its own ranks"},
  };
}

std::vector<KnownKey> precision_keys() {
  constexpr auto kNot = Status::kNotBuilt;
  return {
      {"fp16", kNot, "use bf16: true or dtype: float32", kFalse},
      {"tf32", kNot, "float32 products are exact", kFalse},
      {"fp8", kNot, "use bf16: true", kFalse},
      {"torch_compile", kNot, "kernels are fused by hand", kFalse},
      {"load_in_4bit", kNot, "", kFalse},
      {"load_in_8bit", kNot, "", kFalse},
      {"quantization_bit", kNot, "", kNone},
      {"flash_attn", kNot, "the fastest exact attention is chosen", {"auto", "sdpa"}},
      {"attn_implementation", kNot, "the fastest exact attention is chosen", {"sdpa"}},
  };
}

std::vector<KnownKey> algorithm_keys() {
  constexpr auto kNot = Status::kNotBuilt;
  return {
      {"finetuning_type", kNot, "", {"full"}},
      {"adapter", kNot, "", kNone},
      {"use_peft", kNot, "", kFalse},
      {"lora_*", kNot, ""},
      {"additional_target", kNot, ""},
      {"freeze_*", kNot, "", kFalse},
      {"rl", kNot, "", kNone},
      {"beta", kNot, ""},
      {"loss_type", kNot, ""},
      {"pref_*", kNot, ""},
      {"ppo_*", kNot, ""},
      {"ref_model", kNot, "", kNone},
      {"reward_model", kNot, "", kNone},
      {"num_generations", kNot, ""},
      {"max_completion_length", kNot, ""},
      {"gradient_projection_dimension", kNot, ""},
      {"gradient_type", kNot, ""},
      {"label_smoothing_factor", kNot, "", kZero},
      {"neftune_noise_alpha", kNot, "", {"none", "0"}},
      {"lr_scaling", kNot, "", {"none"}},
      {"optim_args", kNot, "", kNone},
      {"lr_scheduler_kwargs", kNot, "", kNone},
      {"auto_find_batch_size", kNot, "", kFalse},
      {"use_liger_kernel", kNot, "", kFalse},
      {"fsdp", kNot, "use distributed_strategy: zero3", {"", "false", "none"}},
      {"fsdp_config*", kNot, "use distributed_strategy: zero3", kNone},
      {"accelerator_config*", kNot, "", kNone},
  };
}

std::vector<KnownKey> data_keys() {
  constexpr auto kNot = Status::kNotBuilt;
  constexpr std::string_view kTrainFile = "use train_file";
  return {
      {"dataset", kNot, kTrainFile, kNone},
      {"datasets", kNot, kTrainFile},
      {"dataset_dir", kNot, kTrainFile},
      {"dataset_name", kNot, kTrainFile, kNone},
      {"dataset_config*", kNot, kTrainFile, kNone},
      {"train_file_dir", kNot, kTrainFile},
      {"eval_file", kNot, "", kNone},
      {"template", kNot, "", kNone},
      {"chat_template*", kNot, "", kNone},
      {"packing", kNot, "blocks are always packed from plain text", kFalse},
      {"sample_packing", kNot, "blocks are always packed from plain text", kFalse},
      {"streaming", kNot, "", kFalse},
      {"max_samples", kNot, "", kNone},
      {"val_size", kNot, "", {"0", "none"}},
      {"val_set_size", kNot, "", {"0", "none"}},
      {"group_by_length", kNot, "all blocks have one length", kFalse},
      {"train_on_prompt", kNot, "", kFalse},
      {"mask_history", kNot, "", kFalse},
      {"image_*", kNot, ""},
      {"media_dir", kNot, "", kNone},
  };
}

std::vector<KnownKey> run_keys() {
  constexpr auto kNot = Status::kNotBuilt;
  constexpr std::string_view kContinues = "a started run continues by itself from its output_dir";
  return {
      {"report_to", kNot, "losses are in trainer_log.jsonl", {"none", "[]", "[none]", "false"}},
      {"use_tensorboard", kNot, "", kFalse},
      {"use_wandb", kNot, "", kFalse},
      {"use_mlflow", kNot, "", kFalse},
      {"wandb_*", kNot, "", kNone},
      {"do_eval", kNot, "", kFalse},
      {"eval_strategy", kNot, "", {"no", "none", "false"}},
      {"evaluation_strategy", kNot, "", {"no", "none", "false"}},
      {"eval_on_start", kNot, "", kFalse},
      {"eval_dataset", kNot, "", kNone},
      {"eval_*", kNot, "", kNone},
      {"evals_per_epoch", kNot, "", kZero},
      {"saves_per_epoch", kNot, "use save_steps"},
      {"load_best_model_at_end", kNot, "", kFalse},
      {"metric_for_best_model", kNot, "", kNone},
      {"predict_with_generate", kNot, "", kFalse},
      {"save_strategy", kNot, "use save_steps", {"steps"}},
      {"save_only_model", kNot, "", kFalse},
      {"logging_strategy", kNot, "use logging_steps", {"steps"}},
      {"logging_first_step", kNot, "", kFalse},
      {"resume_from_checkpoint", kNot, kContinues, {"true", "latest", "auto", "none"}},
      {"auto_resume_from_checkpoints", kNot, kContinues, {"true"}},
      {"ignore_data_skip", kNot, "", kFalse},
      {"push_to_hub*", kNot, "", kNone},
      {"hub_*", kNot, "", kNone},
      {"mode", kNot, "each has its own subcommand", {"train"}},
  };
}

const std::vector<KnownKey>& table() {
  static const auto kTable = [] {
    std::vector<KnownKey> all;
    for (auto* part : {&no_effect_keys, &precision_keys, &algorithm_keys, &data_keys, &run_keys}) {
      for (auto& key : part()) all.push_back(std::move(key));
    }
    return all;
  }();
  return kTable;
}

bool matches(const KnownKey& known, std::string_view key) {
  if (!known.name.ends_with('*')) return known.name == key;
  return key.starts_with(known.name.substr(0, known.name.size() - 1));
}

}  // namespace

const KnownKey* find_known_key(std::string_view key) {
  const auto& keys = table();
  const auto found = std::ranges::find_if(keys, [&](const auto& k) { return matches(k, key); });
  return found == keys.end() ? nullptr : &*found;
}

bool is_flag(const KnownKey& key) {
  return key.name == "use_torchrun" || key.name == "do_train" ||
         key.name == "overwrite_output_dir" || (!key.off.empty() && key.off[0] == "false");
}

std::string check_known_key(const KnownKey& key, const Setting& setting) {
  if (key.status == Status::kNoEffect) {
    return fmt::format("{}: '{}' has no effect: {}", setting.origin.place(), setting.key, key.why);
  }
  const auto word = lower(setting.value.shown());
  const auto as_bool = parse_bool(word);
  for (const auto& off : key.off) {
    // `packing: off` says what `packing: false` does, and `val_size: 0.0` what 0 does.
    const bool same_bool = parse_bool(std::string(off)) == as_bool && as_bool.has_value();
    const bool same_zero = off == "0" && parse_real(word) == 0.0;
    if (word == off || same_bool || same_zero) return "";
  }
  if (is_null(setting.value)) return "";
  const auto hint = key.why.empty() ? std::string() : fmt::format(" ({})", key.why);
  refuse(setting.origin,
         fmt::format("'{}' is a known key, but this version does not support it{}; remove it{}",
                     setting.key, hint,
                     key.off.empty() ? "" : fmt::format(" or set it to '{}'", key.off[0])));
}

}  // namespace skein::config
