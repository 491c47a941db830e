// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Private to this folder: the one list of all keys, which parsing, help, printing, saving and
// "unknown key" walk. fields(config, field) calls field(name, member, about) for each.

#include "skein/config/online_fields.h"
#include "skein/config/run_config.h"
#include "skein/config/syntax/about.h"

namespace skein::config {

// Thirty years: "for ever", as people write it, and its nanoseconds still fit a clock.
inline constexpr double kMostSeconds = 1e9;

void fields(ModelConfig& config, auto&& field) {
  field("model_name_or_path", config.model_name_or_path,
        About{.help = "folder with config.json, and weights unless train_from_scratch",
              .aliases = {"model_path", "base_model"},
              .is_path = true});
  field("train_from_scratch", config.train_from_scratch,
        About{.help = "initialise from seed instead of loading weights"});
  field("dtype", config.dtype,
        About{.help = "working weights: auto (on GPUs bfloat16, float16 where it is not native; "
                      "else float32), float32, bfloat16, float16, float64",
              .aliases = {"torch_dtype"}});
  field("gradient_checkpointing", config.gradient_checkpointing,
        About{.help = "recompute each block in backward: less memory, a third more compute; "
                      "offload: its inputs wait in host memory",
              .also = "offload"});
  field("offload_activations", config.offload_activations,
        About{.help = "what gradient_checkpointing keeps of each block lies in host memory; also "
                      "gradient_checkpointing: offload",
              .aliases = {"activation_offloading"}});
  field("quantization_bit", config.quantization_bit,
        About{.help = "frozen weights of linear layers in so many bits, beside LoRA's adapters: "
                      "none (all of dtype), 4 (NF4: docs/adapters.md)"});
  field("double_quantization", config.double_quantization,
        About{.help = "the scales of 4-bit weights have 8 bits: 0.516 bytes a weight, not 0.563",
              .aliases = {"bnb_4bit_use_double_quant", "use_bnb_nested_quant"}});
  field("tokenizer_name_or_path", config.tokenizer_name_or_path,
        About{.help = "folder or tokenizer.json, or bytes; empty: the model folder's, else bytes",
              .aliases = {"tokenizer_name", "tokenizer_path", "tokenizer_config"},
              .is_path = true});
  field("rope_scaling", config.rope_scaling,
        About{.help = "longer positions than the model was made for: linear, dynamic, yarn, llama3",
              .choices = {"", "none", "linear", "dynamic", "yarn", "llama3"}});
  field("rope_scaling_factor", config.rope_scaling_factor,
        About{.help = "how much longer; 0: as block_size needs", .min = 0});
  field("new_special_tokens", config.new_special_tokens,
        About{.help = "tokens that the tokenizer and, with resize_vocab, the model get",
              .aliases = {"add_special_tokens"},
              .is_verbatim = true});
  field("resize_vocab", config.resize_vocab,
        About{.help = "the model gets rows for new tokens: the mean of the others"});
}

void fields(RowsConfig& config, auto&& field) {
  field("template", config.chat_format,
        About{.help = "chat format: chatml, llama3, qwen, mistral, gemma, phi3, alpaca; empty: the "
                      "model folder's"});
  field("chat_template", config.chat_template,
        About{.help = "a file with a Jinja chat template",
              .aliases = {"chat_template_jinja", "chat_template_path"},
              .is_path = true});
  field("mask_history", config.mask_history,
        About{.help = "train on the last assistant turn alone"});
  field("train_on_prompt", config.train_on_prompt,
        About{.help = "train on all tokens, not on the assistant's alone",
              .aliases = {"train_on_inputs"}});
  field("packing", config.packing,
        About{.help = "fill sequences of cutoff_len with several rows, isolated from each other",
              .aliases = {"sample_packing"}});
  field("group_by_length", config.group_by_length,
        About{.help = "rows of like length share a micro-batch"});
  field("excess_length_strategy", config.excess_length_strategy,
        About{.help = "rows longer than cutoff_len: truncate, drop, error"});
}

void loss_fields(PreferenceConfig& config, auto&& field) {
  field(
      "pref_beta", config.pref_beta,
      About{.help = "dpo, kto: how dear it is to leave the reference; simpo, orpo: the loss's own "
                    "factor",
            .aliases = {"beta", "rl_beta", "dpo_beta", "orpo_alpha"},
            .min = 0,
            .min_is_allowed = false});
  field("pref_loss", config.pref_loss,
        About{.help = "dpo: one or several of sigmoid, hinge, ipo, robust, exo_pair, nca_pair, "
                      "sppo_hard, apo_zero, apo_down, discopop, sigmoid_norm, simpo, orpo, sft; "
                      "kto: kto, apo_zero_unpaired; empty: sigmoid, kto",
              .aliases = {"loss_type", "dpo_loss_type"}});
  field("loss_weights", config.loss_weights,
        About{.help = "dpo: what each of pref_loss counts; empty: 1", .min = 0});
  field("pref_ftx", config.pref_ftx,
        About{.help = "dpo, kto: adds so many times -log p of good answers, per token of each",
              .aliases = {"dpo_ftx", "kto_ftx"},
              .min = 0});
  field("rpo_alpha", config.rpo_alpha,
        About{.help = "dpo: adds so many times the mean -log p of the chosen answers' tokens",
              .min = 0});
  field(
      "ld_alpha", config.ld_alpha,
      About{
          .help = "dpo: what tokens beyond the shorter answer's length count", .min = 0, .max = 1});
  field("f_divergence_type", config.f_divergence_type,
        About{.help = "dpo: distance from the reference: reverse_kl, forward_kl, js_divergence, "
                      "alpha_divergence"});
  field("f_alpha_divergence_coef", config.f_alpha_divergence_coef,
        About{.help = "alpha of alpha_divergence"});
  field("simpo_gamma", config.simpo_gamma, About{.help = "simpo: the margin that is asked for"});
  field("discopop_tau", config.discopop_tau,
        About{.help = "discopop: its temperature", .min = 0, .min_is_allowed = false});
  field("kto_chosen_weight", config.kto_chosen_weight,
        About{.help = "kto: what a desirable answer counts",
              .aliases = {"desirable_weight", "kto_desirable_weight"},
              .min = 0});
  field("kto_rejected_weight", config.kto_rejected_weight,
        About{.help = "kto: what an undesirable answer counts",
              .aliases = {"undesirable_weight", "kto_undesirable_weight"},
              .min = 0});
}

void fields(PreferenceConfig& config, auto&& field) {
  loss_fields(config, field);
  field("ref_model", config.ref_model,
        About{.help = "folder of the reference; empty: the model without adapters, or as it was at "
                      "the start",
              .aliases = {"ref_model_name_or_path"},
              .is_path = true});
  field("precompute_ref_log_probs", config.precompute_ref_log_probs,
        About{.help = "the reference is asked before the first step, and its numbers are kept"});
  field("share_prompts", config.share_prompts,
        About{.help = "rm, dpo, ppo, grpo, rloo: a prompt is computed once for all of its answers, "
                      "where the model and the run allow it"});
  field("center_rewards_coefficient", config.center_rewards_coefficient,
        About{.help = "rm: keeps the sum of a pair's scores near zero; 0: does not", .min = 0});
  field("equal_pairs", config.equal_pairs,
        About{.help = "rm, dpo: pairs of two equal answers: drop, keep, error"});
}

void lora_fields(FinetuneConfig& config, auto&& field) {
  field("adapter_name_or_path", config.adapter_name_or_path,
        About{.help = "folder of a LoRA adapter to go on with",
              .aliases = {"lora_model_dir", "peft_path"},
              .is_path = true});
  field("lora_rank", config.lora_rank,
        About{.help = "inner dimension of adapters", .aliases = {"lora_r"}, .min = 1});
  field("lora_alpha", config.lora_alpha,
        About{.help = "adapters are scaled by lora_alpha / lora_rank; absent: twice the rank",
              .min = 1});
  field("lora_dropout", config.lora_dropout,
        About{.help = "of what adapters see", .min = 0, .max = 1, .max_is_allowed = false});
  field("lora_target", config.lora_target,
        About{.help = "modules with adapters: names, one pattern, or all (every linear layer)",
              .aliases = {"lora_target_modules", "target_modules"},
              .is_verbatim = true});
  field("rank_pattern", config.rank_pattern,
        About{.help = "lora_rank of some modules: {name: rank}", .min = 1});
  field("alpha_pattern", config.alpha_pattern,
        About{.help = "lora_alpha of some modules: {name: alpha}", .min = 0});
  field("use_rslora", config.use_rslora,
        About{.help = "scale by lora_alpha / sqrt(lora_rank)",
              .aliases = {"peft_use_rslora", "lora_use_rslora"}});
  field("use_dora", config.use_dora,
        About{.help = "train magnitude and direction apart", .aliases = {"peft_use_dora"}});
  field("loraplus_lr_ratio", config.loraplus_lr_ratio,
        About{.help = "learning rate of B over that of A; 0: the same", .min = 0});
  field("modules_to_save", config.modules_to_save,
        About{.help = "modules that train whole beside the adapters",
              .aliases = {"additional_target", "lora_modules_to_save"},
              .is_verbatim = true});
}

void fields(FinetuneConfig& config, auto&& field) {
  field("finetuning_type", config.finetuning_type,
        About{.help = "which weights train: full, freeze (some blocks), lora (adapters)"});
  lora_fields(config, field);
  field("freeze_trainable_layers", config.freeze_trainable_layers,
        About{.help = "freeze: so many last blocks train; negative: first"});
  field("freeze_trainable_modules", config.freeze_trainable_modules,
        About{.help = "freeze: modules of these blocks that train; all", .is_verbatim = true});
  field("freeze_extra_modules", config.freeze_extra_modules,
        About{.help = "freeze: modules outside of blocks that train too", .is_verbatim = true});
  field("use_llama_pro", config.use_llama_pro,
        About{.help = "freeze: the blocks that train are spread evenly"});
  field("neftune_noise_alpha", config.neftune_noise_alpha,
        About{.help = "noise on the embeddings in training; 0: none", .min = 0});
  field("label_smoothing_factor", config.label_smoothing_factor,
        About{.help = "share of the target that is spread over all tokens; of dpo: how often the "
                      "worse answer was chosen",
              .aliases = {"label_smoothing", "dpo_label_smoothing"},
              .min = 0,
              .max = 1,
              .max_is_allowed = false});
}

void fields(DataConfig& config, auto&& field) {
  field("train_file", config.train_file,
        About{.help = ".txt, .jsonl with \"text\", or .bin of token ids (nanoGPT, llm.c)",
              .takes_list = true,
              .is_path = true});
  field("train_file_dir", config.train_file_dir,
        About{.help = "folder whose .txt, .jsonl and .bin files are trained on", .is_path = true});
  field("eval_file", config.eval_file,
        About{.help = "the same for evaluation",
              .aliases = {"validation_file"},
              .takes_list = true,
              .is_path = true});
  field(
      "validation_file_dir", config.validation_file_dir,
      About{
          .help = "folder of files for evaluation", .aliases = {"eval_file_dir"}, .is_path = true});
  field("block_size", config.block_size,
        About{.help = "tokens per block",
              .aliases = {"cutoff_len", "max_length", "max_seq_length", "sequence_len"},
              .min = 2});
  field("max_train_samples", config.max_train_samples,
        About{.help = "use at most this many blocks, or rows; absent: all", .min = 1});
  field("max_eval_samples", config.max_eval_samples,
        About{.help = "evaluate at most this many blocks, or rows; absent: all", .min = 1});
  field("validation_split_percentage", config.validation_split_percentage,
        About{.help = "percent of the blocks held out; 0: none, or 5 when evaluation is on and "
                      "has no file",
              .min = 0,
              .max = 100,
              .max_is_allowed = false,
              .is_percentage = true});
  field("validation_rows", config.validation_rows,
        About{.help = "rows held out, in place of a percentage; 0: none", .min = 0});
  field("bad_lines", config.bad_lines,
        About{.help = "a line that is not UTF-8 or not JSON: stop, skip"});
  field("preprocessing_num_workers", config.preprocessing_num_workers,
        About{.help = "threads that tokenise; 0: all cores",
              .aliases = {"dataset_num_proc", "dataset_processes"},
              .min = 0});
  field("dataloader_drop_last", config.dataloader_drop_last,
        About{.help = "drop the last incomplete global batch of an epoch",
              .aliases = {"dataloader.drop_last", "drop_last"}});
  field("dataloader_num_workers", config.dataloader_num_workers,
        About{.help = "0: no thread reads ahead; more than 1 is as good as 1",
              .aliases = {"num_workers", "dataloader.num_workers"},
              .min = 0});
  field("dataloader_prefetch_factor", config.dataloader_prefetch_factor,
        About{.help = "steps that are read ahead",
              .aliases = {"prefetch_factor", "dataloader.prefetch_factor"},
              .min = 1});
  field("data_cache_dir", config.data_cache_dir,
        About{.help = "prepared data; empty: $XDG_CACHE_HOME/skein/data or ~/.cache/skein/data",
              .aliases = {"dataset_prepared_path"},
              .is_path = true});
  field("overwrite_cache", config.overwrite_cache, About{.help = "prepare the data again"});
}

void fields(EvalConfig& config, auto&& field) {
  field("eval_strategy", config.eval_strategy,
        About{.help = "evaluate: no, steps, epoch", .aliases = {"evaluation_strategy"}});
  field("eval_steps", config.eval_steps,
        About{.help = "updates between evaluations; below 1: a share of all; 0: logging_steps",
              .min = 0});
  field("per_device_eval_batch_size", config.per_device_eval_batch_size,
        About{.help = "blocks per rank and evaluation batch",
              .aliases = {"eval_batch_size"},
              .min = 1});
  field("eval_on_start", config.eval_on_start, About{.help = "also before the first update"});
  field("load_best_model_at_end", config.load_best_model_at_end,
        About{.help = "the final model is the one with the best evaluation"});
  field("metric_for_best_model", config.metric_for_best_model,
        About{.help = "what best means: loss, or any number that evaluations log, as "
                      "rewards/accuracies"});
  field("greater_is_better", config.greater_is_better,
        About{.help = "of metric_for_best_model: true, false; auto: not of loss, perplexity, kl "
                      "and what is said of rejected answers"});
  field("early_stopping_patience", config.early_stopping_patience,
        About{.help = "stop after so many evaluations without a better one; absent: never",
              .aliases = {"early_stopping_steps"},
              .min = 1});
  field("early_stopping_threshold", config.early_stopping_threshold,
        About{.help = "how much better it must be to count", .min = 0});
}

void fields(BatchConfig& config, auto&& field) {
  field("per_device_train_batch_size", config.per_device_train_batch_size,
        About{.help = "blocks per rank and micro-batch; 8 when nothing says otherwise; auto",
              .aliases = {"micro_batch_size", "micro_batch_size_per_gpu",
                          "train_micro_batch_size_per_gpu", "dataloader.batch_size"},
              .min = 1,
              .also = "auto"});
  field("gradient_accumulation_steps", config.gradient_accumulation_steps,
        About{.help = "micro-batches per update; 1 when nothing says otherwise",
              .aliases = {"accumulation_steps"},
              .min = 1});
  field(
      "global_batch_size", config.global_batch_size,
      About{.help = "blocks per update over all ranks", .aliases = {"train_batch_size"}, .min = 1});
  field("batch_size", config.batch_size,
        About{.help = "global batch when alone, per device beside gradient_accumulation_steps",
              .min = 1,
              .saved = false});
  field("batch_conflict", config.batch_conflict,
        About{.help = "when the three do not multiply: error, keep_micro, keep_global"});
  field("auto_find_batch_size", config.auto_find_batch_size,
        About{.help = "the largest micro-batch that fits by the plan, with the same global batch; "
                      "also per_device_train_batch_size: auto"});
}

void fields(OptimizerConfig& config, auto&& field) {
  field("optim", config.optim,
        About{.help = "adamw_torch; adamw_8bit: moments in 8 bits, with a scale per 128",
              .aliases = {"optimizer"}});
  field("pure_bf16", config.pure_bf16,
        About{.help = "weights, gradients and moments in bfloat16, no fp32 master: 8 bytes per "
                      "parameter, rounded at random"});
  field("learning_rate", config.learning_rate,
        About{.help = "peak learning rate", .aliases = {"lr"}, .min = 0});
  field("weight_decay", config.weight_decay,
        About{.help = "not applied to biases and norm weights", .min = 0});
  field("adam_beta1", config.adam_beta1,
        About{.help = "AdamW beta1", .min = 0, .max = 1, .max_is_allowed = false});
  field("adam_beta2", config.adam_beta2,
        About{.help = "AdamW beta2", .min = 0, .max = 1, .max_is_allowed = false});
  field("adam_epsilon", config.adam_epsilon,
        About{.help = "AdamW epsilon", .min = 0, .min_is_allowed = false});
  field("max_grad_norm", config.max_grad_norm,
        About{.help = "clip the gradient to this norm; 0: no clipping", .min = 0});
  field(
      "grad_accum_fp32", config.grad_accum_fp32,
      About{.help = "keep gradients in float32; always so with accumulation, but with pure_bf16"});
  field("nan_policy", config.nan_policy,
        About{.help = "when loss or gradient is not finite: stop, skip, rollback"});
}

void fields(LossScaleConfig& config, auto&& field) {
  field("loss_scaler", config.loss_scaler,
        About{.help = "float16: whose rule moves the loss scale: pytorch, deepspeed"});
  field(
      "loss_scale", config.loss_scale,
      About{.help = "float16: a fixed scale; 0 or dynamic: it moves", .min = 0, .also = "dynamic"});
  field("initial_scale_power", config.initial_scale_power,
        About{.help = "float16: the first scale is 2 to this power", .min = 0, .max = 127});
  field("loss_scale_window", config.loss_scale_window,
        About{.help = "float16: updates without overflow before the scale doubles; 0: the rule's "
                      "own, pytorch 2000, deepspeed 1000",
              .min = 0});
  field("hysteresis", config.hysteresis,
        About{.help = "deepspeed's rule: overflows that it takes to halve the scale", .min = 1});
  field("consecutive_hysteresis", config.consecutive_hysteresis,
        About{.help = "deepspeed's rule: every update without overflow begins to count again"});
  field("min_loss_scale", config.min_loss_scale,
        About{.help = "deepspeed's rule: an overflow at this scale ends the run",
              .min = 0,
              .min_is_allowed = false});
}

void cosine_fields(ScheduleConfig& config, auto&& field) {
  field("num_cycles", config.num_cycles,
        About{.help = "cosines: waves; -1: 1 with restarts, else 0.5",
              .aliases = {"lr_scheduler_kwargs.num_cycles"},
              .min = -1});
  field("min_lr", config.min_lr,
        About{.help = "cosine_with_min_lr, nanogpt: the last learning rate",
              .aliases = {"lr_scheduler_kwargs.min_lr"},
              .min = 0});
  field("min_lr_rate", config.min_lr_rate,
        About{.help = "the same as a share of learning_rate; also warmup_stable_decay",
              .aliases = {"lr_scheduler_kwargs.min_lr_rate", "lr_scheduler_kwargs.min_lr_ratio",
                          "cosine_min_lr_ratio"},
              .min = 0,
              .max = 1});
  field("lr_decay_iters", config.lr_decay_iters,
        About{.help = "nanogpt: update at which min_lr is reached; 0: the last",
              .aliases = {"lr_scheduler_kwargs.lr_decay_iters"},
              .min = 0});
}

void other_shape_fields(ScheduleConfig& config, auto&& field) {
  field("lr_end", config.lr_end,
        About{.help = "polynomial: the last learning rate",
              .aliases = {"lr_scheduler_kwargs.lr_end"},
              .min = 0});
  field("power", config.power,
        About{.help = "polynomial: exponent", .aliases = {"lr_scheduler_kwargs.power"}});
  field("num_decay_steps", config.num_decay_steps,
        About{.help = "warmup_stable_decay: updates of the fall",
              .aliases = {"lr_scheduler_kwargs.num_decay_steps"},
              .min = 0});
  field("num_stable_steps", config.num_stable_steps,
        About{.help = "warmup_stable_decay: updates at the peak; 0: what the others leave",
              .aliases = {"lr_scheduler_kwargs.num_stable_steps"},
              .min = 0});
  field("warmup_type", config.warmup_type,
        About{.help = "warmup_stable_decay: linear, cosine, 1-sqrt; DeepSpeed's: linear, log; "
                      "auto: linear, DeepSpeed's log",
              .aliases = {"lr_scheduler_kwargs.warmup_type"}});
  field("decay_type", config.decay_type,
        About{.help = "warmup_stable_decay: linear, cosine, 1-sqrt",
              .aliases = {"lr_scheduler_kwargs.decay_type"}});
  field("timescale", config.timescale,
        About{.help = "inverse_sqrt: updates; 0: those of the warm-up, or 10000",
              .aliases = {"lr_scheduler_kwargs.timescale"},
              .min = 0});
}

void cycle_fields(DeepSpeedScheduleConfig& config, auto&& field) {
  field("cycle_min_lr", config.cycle_min_lr,
        About{.help = "onecycle: it begins and ends here; learning_rate is the top", .min = 0});
  field("cycle_first_step_size", config.cycle_first_step_size,
        About{.help = "onecycle: updates of the rise", .min = 1, .max = 1e15});
  field("cycle_second_step_size", config.cycle_second_step_size,
        About{.help = "onecycle: updates of the fall; absent: as many", .min = 0, .max = 1e15});
  field("cycle_first_stair_count", config.cycle_first_stair_count,
        About{.help = "onecycle: rise in so many stairs; 0: smoothly", .min = 0});
  field("cycle_second_stair_count", config.cycle_second_stair_count,
        About{.help = "onecycle: the same of the fall; absent: as many", .min = 0});
  field("decay_step_size", config.decay_step_size,
        About{.help = "onecycle: updates to which decay_lr_rate applies, after the cycle; 0: no "
                      "decay",
              .min = 0});
  field("decay_lr_rate", config.decay_lr_rate,
        About{.help = "onecycle: how fast the rate falls after the cycle", .min = 0});
}

void fields(DeepSpeedScheduleConfig& config, auto&& field) {
  field("ds_compat", config.ds_compat,
        About{.help = "the DeepSpeed whose defaults and formulas count: 0.16, 0.19"});
  field("warmup_min_lr", config.warmup_min_lr,
        About{.help = "warmuplr, warmupdecaylr: the first learning rate", .min = 0});
  field("total_num_steps", config.total_num_steps,
        About{.help = "warmupdecaylr, warmupcosinelr: update at which it ends; 0: the last",
              .min = 0});
  field("warmup_min_ratio", config.warmup_min_ratio,
        About{.help = "warmupcosinelr: where the warm-up begins, as a share of learning_rate",
              .min = 0,
              .max = 1});
  field("cos_min_ratio", config.cos_min_ratio,
        About{.help = "warmupcosinelr: where it ends, as a share of learning_rate",
              .min = 0,
              .max = 1});
  cycle_fields(config, field);
  field("lr_range_test_step_size", config.lr_range_test_step_size,
        About{.help = "lrrangetest: updates in which the rate grows by lr_range_test_step_rate",
              .min = 1});
  field("lr_range_test_step_rate", config.lr_range_test_step_rate,
        About{.help = "lrrangetest: growth, in shares of learning_rate", .min = 0});
  field("lr_range_test_staircase", config.lr_range_test_staircase,
        About{.help = "lrrangetest: all at once after each such interval"});
}

void fields(ScheduleConfig& config, auto&& field) {
  field("lr_scheduler_type", config.lr_scheduler_type,
        About{.help = "constant, constant_with_warmup, linear, cosine, cosine_with_restarts, "
                      "polynomial, inverse_sqrt, cosine_with_min_lr, warmup_stable_decay, "
                      "nanogpt; DeepSpeed's: warmuplr, warmupdecaylr, warmupcosinelr, onecycle, "
                      "lrrangetest",
              .aliases = {"lr_scheduler"}});
  field("warmup_steps", config.warmup_steps,
        About{.help = "updates of linear warm-up; below 1: a share of all", .min = 0});
  field("warmup_ratio", config.warmup_ratio,
        About{.help = "the same as a share of all updates", .min = 0, .max = 1});
  field("num_train_epochs", config.num_train_epochs,
        About{.help = "passes over the data, fractions allowed",
              .aliases = {"num_epochs"},
              .min = 0,
              .min_is_allowed = false});
  field("max_steps", config.max_steps,
        About{.help = "updates; positive: wins over num_train_epochs", .min = -1});
  cosine_fields(config, field);
  other_shape_fields(config, field);
  field("lr_scaling", config.lr_scaling,
        About{.help = "multiply the learning rate as the batch grows: none, linear, sqrt"});
  field("lr_scaling_base_batch", config.lr_scaling_base_batch,
        About{.help = "the batch that learning_rate is meant for; 0: that of one rank", .min = 0});
  fields(config.deepspeed, field);
}

void fields(OffloadConfig& config, auto&& field) {
  field(
      "offload_optimizer", config.offload_optimizer,
      About{.help = "where optimizer states lie: none (with the weights), cpu (host memory, where "
                    "the update runs too), nvme (a local disk: nvme_path)"});
  field("offload_param", config.offload_param,
        About{.help = "where the shards of zero3 lie between uses: none (on the device), cpu (host "
                      "memory, with the optimizer's states), nvme (a local disk)"});
  field("offload_ratio", config.offload_ratio,
        About{.help = "the share of the optimizer states that leaves the device, by whole blocks",
              .aliases = {"ratio"},
              .min = 0,
              .max = 1});
  field("offload_pin_memory", config.pin_memory,
        About{.help = "offloaded memory is locked, so that GPUs copy at full speed"});
  field("nvme_path", config.nvme_path,
        About{.help = "folder on a local disk for what is offloaded to nvme; nothing stays there",
              .is_path = true});
  field("nvme_block_size", config.nvme_block_size,
        About{.help = "bytes of one request to the disk of nvme_path, rounded up to 4096; 0: "
                      "automatic, as much as passes at once",
              .min = 0,
              .max = 1 << 30});
  field(
      "nvme_queue_depth", config.nvme_queue_depth,
      About{.help = "requests that the disk has at once; 0: automatic, 16", .min = 0, .max = 4096});
  field("nvme_threads", config.nvme_threads,
        About{.help = "threads that make the requests where io_uring is not allowed; 0: automatic, "
                      "as many as requests",
              .min = 0,
              .max = 1024});
}

void fields(ParallelConfig& config, auto&& field) {
  field("distributed_strategy", config.distributed_strategy,
        About{.help = "auto (what fits), ddp, zero1, zero2, zero3; deepspeed: as the JSON says",
              .also = "deepspeed"});
  field("device", config.device, About{.help = "auto, cuda, cpu"});
  field("ddp_backend", config.ddp_backend,
        About{.help = "auto (nccl on GPUs, gloo on CPUs), nccl, gloo",
              .aliases = {"distributed_backend"},
              .choices = {"auto", "nccl", "gloo"}});
  field("ddp_timeout", config.ddp_timeout,
        About{.help = "seconds a collective may take before the run ends",
              .min = 1,
              .max = kMostSeconds});
  field("heartbeat_timeout", config.heartbeat_timeout,
        About{.help = "seconds a stopped rank is waited for; 0: no heartbeats",
              .min = 0,
              .max = kMostSeconds});
  field("join_timeout", config.join_timeout,
        About{.help = "seconds machines and ranks have to join the run, also again",
              .min = 1,
              .max = kMostSeconds});
  field("stop_grace", config.stop_grace,
        About{.help = "seconds without progress after which a rank that was asked to stop is ended",
              .min = 1,
              .max = kMostSeconds});
  field("distributed", config.distributed,
        About{.help = "false: one rank, no group", .aliases = {"ddp", "use_ddp"}});
}

void fields(CheckpointConfig& config, auto&& field) {
  field("output_dir", config.output_dir,
        About{.help = "the run's folder", .aliases = {"output_path"}, .is_path = true});
  field("experiment_name", config.experiment_name,
        About{.help = "without output_dir: outputs/<experiment_name>; empty: run_name"});
  field("save_strategy", config.save_strategy, About{.help = "save: no, steps, epoch"});
  field("save_steps", config.save_steps,
        About{.help = "updates between checkpoints; below 1: a share of all",
              .min = 0,
              .min_is_allowed = false});
  field("save_total_limit", config.save_total_limit,
        About{.help = "checkpoints to keep; absent: all", .min = 1});
  field("save_timeout", config.save_timeout,
        About{.help = "seconds in which no rank has written a byte before a save is given up",
              .min = 1,
              .max = kMostSeconds});
  field("save_only_model", config.save_only_model,
        About{.help = "checkpoints without optimizer state, which cannot be continued"});
  field("save_on_each_node", config.save_on_each_node,
        About{.help = "output_dir is not shared: every node saves all by itself; ddp only"});
  field("max_shard_size", config.max_shard_size,
        About{.help = "a model's files are at most so large, as 5GB", .min = 1});
  field("resume_from_checkpoint", config.resume_from_checkpoint,
        About{.help = "auto (true, latest): the newest in output_dir; false: none; or a "
                      "checkpoint's folder",
              .is_path = true,
              .saved = false});
  field("fresh", config.fresh,
        About{.help = "start over instead of continuing a started run", .saved = false});
}

void fields(LogConfig& config, auto&& field) {
  field("logging_steps", config.logging_steps,
        About{.help = "updates between log lines; below 1: a share of all",
              .min = 0,
              .min_is_allowed = false});
  field("logging_first_step", config.logging_first_step,
        About{.help = "also log the first update"});
  field("report_to", config.report_to,
        About{.help = "none, all, tensorboard, wandb, or a list of them",
              .choices = {"tensorboard", "wandb"},
              .not_built = {"mlflow", "comet_ml", "neptune", "clearml", "dvclive", "codecarbon",
                            "azure_ml", "swanlab", "trackio", "dagshub", "flyte"}});
  field("run_name", config.run_name,
        About{.help = "name in the logs; empty: experiment_name", .aliases = {"wandb_name"}});
  field("disable_tqdm", config.disable_tqdm, About{.help = "plain lines instead of the live line"});
  field("loss_spike_zscore", config.loss_spike_zscore,
        About{.help = "warn when a loss lies this many deviations above the mean; 0: never",
              .min = 0});
  field("profile_steps", config.profile_steps,
        About{.help = "updates of which a trace for chrome://tracing and a table of time and FLOPs "
                      "are written, as 10-12"});
}

void fields(RunConfig& config, auto&& field) {
  field("stage", config.stage,
        About{.help = "pt (pretrain), sft, rm (reward model), dpo, kto, ppo, grpo, rloo",
              .aliases = {"algorithm"}});
  field("seed", config.seed, About{.help = "everything random follows from it", .min = 0});
  field("data_seed", config.data_seed, About{.help = "order of the data; absent: seed", .min = 0});
  field("full_determinism", config.full_determinism,
        About{.help = "bit-exact on GPUs too, with slower kernels"});
  fields(config.model, field);
  fields(config.data, field);
  fields(config.rows, field);
  fields(config.preference, field);
  fields(config.rollout, field);
  fields(config.reward, field);
  fields(config.policy, field);
  fields(config.ppo, field);
  fields(config.finetune, field);
  fields(config.eval, field);
  fields(config.batch, field);
  fields(config.optimizer, field);
  fields(config.loss_scale, field);
  fields(config.schedule, field);
  fields(config.parallel, field);
  fields(config.offload, field);
  fields(config.checkpoint, field);
  fields(config.log, field);
}

}  // namespace skein::config
