// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/implied_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "skein/config/compat/translated_keys.h"
#include "skein/config/fields.h"
#include "skein/config/online_settings.h"
#include "skein/config/syntax/values.h"

namespace skein::config {
namespace {

// An explicit null is as good as nothing, except that it hides what a parent file says.
void drop_absent_batch_sizes(Layer& layer) {
  for (const auto* key : {"per_device_train_batch_size", "gradient_accumulation_steps",
                          "global_batch_size", "batch_size"}) {
    const auto found = layer.find(key);
    if (found != layer.end() && is_absent(found->second.value)) layer.erase(found);
  }
}

bool add_timeout(Layer& layer, const char* variable, int64_t seconds, const char* unit) {
  const char* text = std::getenv(variable);
  if (!text || !*text) return false;
  const Origin origin{.kind = Origin::Kind::kEnvironment, .file = variable};
  const auto number = parse_integer(text);
  if (!number || *number < 1 || *number > INT32_MAX) {
    refuse(origin, fmt::format("must be a whole number of {} above 0, not '{}'; unset it, or give "
                               "ddp_timeout=SECONDS",
                               unit, text));
  }
  const auto value = scalar(fmt::format("{}", *number * seconds), origin);
  layer.insert_or_assign("ddp_timeout", Setting{"ddp_timeout", value, origin});
  return true;
}

// The schedules that read a key.
const std::map<std::string, std::vector<Schedule>> kScheduleKeys = {
    {"num_cycles",
     {Schedule::kCosine, Schedule::kCosineWithRestarts, Schedule::kCosineWithMinLr,
      Schedule::kWarmupStableDecay}},
    {"min_lr", {Schedule::kCosineWithMinLr, Schedule::kNanoGpt}},
    {"min_lr_rate", {Schedule::kCosineWithMinLr, Schedule::kWarmupStableDecay}},
    {"lr_decay_iters", {Schedule::kNanoGpt}},
    {"lr_end", {Schedule::kPolynomial}},
    {"power", {Schedule::kPolynomial}},
    {"num_decay_steps", {Schedule::kWarmupStableDecay}},
    {"num_stable_steps", {Schedule::kWarmupStableDecay}},
    {"warmup_type",
     {Schedule::kWarmupStableDecay, Schedule::kWarmupLr, Schedule::kWarmupDecayLr,
      Schedule::kWarmupCosineLr}},
    {"decay_type", {Schedule::kWarmupStableDecay}},
    {"timescale", {Schedule::kInverseSqrt}},
    {"warmup_min_lr", {Schedule::kWarmupLr, Schedule::kWarmupDecayLr}},
    {"total_num_steps", {Schedule::kWarmupDecayLr, Schedule::kWarmupCosineLr}},
    {"warmup_min_ratio", {Schedule::kWarmupCosineLr}},
    {"cos_min_ratio", {Schedule::kWarmupCosineLr}},
    {"cycle_min_lr", {Schedule::kOneCycle}},
    {"cycle_first_step_size", {Schedule::kOneCycle}},
    {"cycle_second_step_size", {Schedule::kOneCycle}},
    {"cycle_first_stair_count", {Schedule::kOneCycle}},
    {"cycle_second_stair_count", {Schedule::kOneCycle}},
    {"decay_step_size", {Schedule::kOneCycle}},
    {"decay_lr_rate", {Schedule::kOneCycle}},
    {"lr_range_test_step_size", {Schedule::kLrRangeTest}},
    {"lr_range_test_step_rate", {Schedule::kLrRangeTest}},
    {"lr_range_test_staircase", {Schedule::kLrRangeTest}},
};

// What only rows have; stage pt trains on text.
void add_row_keys(std::map<std::string, std::string>& idle) {
  for (const auto* key : {"template", "chat_template", "mask_history", "train_on_prompt",
                          "group_by_length", "excess_length_strategy"}) {
    idle[key] = "stage is pt, which trains on text; it is for the rows of the other stages";
  }
  idle["packing"] = "stage is pt, whose blocks are always full";
  idle["validation_rows"] =
      "stage is pt, which has no rows; validation_split_percentage holds out a share";
}

// What is asked of some stages alone.
void add_preference_keys(const RunConfig& config, std::map<std::string, std::string>& idle) {
  using enum TrainingStage;
  const auto leave = [&](std::initializer_list<const char*> keys, const std::string& why) {
    for (const auto* key : keys) idle[key] = why;
  };
  const auto stage = config.stage;
  const auto is = fmt::format("stage is {}", to_text(stage));
  const auto& losses = config.preference.pref_loss;
  const auto has = [&](PreferenceLoss loss) { return std::ranges::count(losses, loss) > 0; };
  if (stage != kDpo && stage != kKto) {
    leave({"pref_beta", "pref_loss", "pref_ftx", "precompute_ref_log_probs"}, is);
    if (!is_online(stage)) leave({"ref_model"}, is);
  }
  if (stage != kDpo) {
    leave({"loss_weights", "rpo_alpha", "ld_alpha", "f_divergence_type", "f_alpha_divergence_coef",
           "simpo_gamma", "discopop_tau"},
          is);
  }
  if (stage != kKto) leave({"kto_chosen_weight", "kto_rejected_weight"}, is);
  if (stage != kReward) leave({"center_rewards_coefficient"}, is);
  const bool has_pairs = stage == kReward || stage == kDpo;
  if (!has_pairs) leave({"equal_pairs"}, is);
  if (!has_pairs && !is_online(stage)) leave({"share_prompts"}, is);
  if (stage == kReward || stage == kKto) leave({"label_smoothing_factor"}, is);
  if (stage != kDpo) return;
  if (!has(PreferenceLoss::kSimpo)) leave({"simpo_gamma"}, "pref_loss is not simpo");
  if (!has(PreferenceLoss::kDiscopop)) leave({"discopop_tau"}, "pref_loss is not discopop");
  if (config.preference.f_divergence_type != Divergence::kAlpha) {
    leave({"f_alpha_divergence_coef"},
          fmt::format("f_divergence_type is {}", to_text(config.preference.f_divergence_type)));
  }
}

void add_loss_scale_keys(const RunConfig& config, std::map<std::string, std::string>& idle) {
  const auto& keys = config.loss_scale;
  const auto dtype = config.model.dtype;
  if (keys.loss_scaler == LossScaleRule::kPyTorch) {
    for (const auto* key : {"hysteresis", "consecutive_hysteresis", "min_loss_scale"}) {
      idle[key] = "loss_scaler is pytorch";
    }
  }
  if (!dtype || dtype == DType::kF16) return;  // auto may become float16
  for (const auto* key : {"loss_scaler", "loss_scale", "initial_scale_power", "loss_scale_window",
                          "hysteresis", "consecutive_hysteresis", "min_loss_scale"}) {
    idle[key] = fmt::format("dtype is {}", to_text(dtype));
  }
}

void add_offload_keys(const RunConfig& config, std::map<std::string, std::string>& idle) {
  const auto& keys = config.offload;
  const bool nvme =
      keys.offload_optimizer == Offload::kNvme || keys.offload_param == Offload::kNvme;
  for (const auto* key : {"nvme_path", "nvme_block_size", "nvme_queue_depth", "nvme_threads"}) {
    if (!nvme) idle[key] = "nothing is offloaded to nvme: give offload_optimizer: nvme";
  }
  const bool nothing =
      keys.offload_optimizer == Offload::kNone && keys.offload_param == Offload::kNone;
  if (nothing && config.parallel.distributed_strategy != Strategy::kAuto) {  // which may offload
    idle["offload_pin_memory"] = "nothing is offloaded: give offload_optimizer: cpu";
  }
  if (keys.offload_ratio == 0 && keys.offload_param == Offload::kNone) {
    idle["offload_optimizer"] = "offload_ratio is 0";
  }
}

std::map<std::string, std::string> texts_of(RunConfig config) {
  std::map<std::string, std::string> texts;
  fields(config, [&](const std::string& name, auto& member, const About&) {
    texts[name] = to_text(member);
  });
  return texts;
}

}  // namespace

// Only accumulation given beside it changes the reading: otherwise accumulation on the command line
// would turn a file's global batch into a per-device one.
void read_bare_batch_size(Layer& layer, std::vector<std::string>& notes) {
  drop_absent_batch_sizes(layer);
  auto bare = layer.extract("batch_size");
  if (bare.empty()) return;
  auto& setting = bare.mapped();
  const auto steps = layer.find("gradient_accumulation_steps");
  const bool per_device = steps != layer.end() && steps->second.layer <= setting.layer;
  const std::string key = per_device ? "per_device_train_batch_size" : "global_batch_size";
  const auto reading = per_device ? "per device, since accumulation is given beside it"
                                  : "the global batch, since accumulation is not given beside it";
  const auto twin = layer.find(key);
  if (twin != layer.end() && twin->second.layer == setting.layer) {
    refuse(setting.origin,
           fmt::format("'batch_size' is read as {}, but '{}' is given too ({}); keep one", reading,
                       twin->second.key, twin->second.origin.place()));
  }
  if (twin != layer.end() && twin->second.layer > setting.layer) return;
  notes.push_back(fmt::format("{}: batch_size {} is read as {}", setting.origin.place(),
                              setting.value.shown(), reading));
  setting.origin.spelling =
      fmt::format("batch_size, read as {}", per_device ? "per device" : "global");
  layer.insert_or_assign(key, std::move(setting));
}

void read_auto_batch_size(Layer& layer) {
  const auto found = layer.find("per_device_train_batch_size");
  if (found == layer.end() || lower(found->second.value.text) != "auto") return;
  auto setting = layer.extract(found).mapped();
  const auto twin = layer.find("auto_find_batch_size");
  if (twin != layer.end() && parse_bool(twin->second.value.text) == false) {
    refuse(setting.origin,
           fmt::format("'{}: auto' contradicts 'auto_find_batch_size: false' ({}); keep one",
                       setting.key, twin->second.origin.place()));
  }
  setting.value.text = "true";
  setting.origin.spelling = setting.key + ": auto";
  layer.insert_or_assign("auto_find_batch_size", std::move(setting));
}

void read_offloaded_checkpointing(Layer& layer) {
  const auto found = layer.find("gradient_checkpointing");
  if (found == layer.end() || !is_offload_word(found->second.value.text)) return;
  auto& setting = found->second;
  const auto twin = layer.find("offload_activations");
  if (twin != layer.end() && parse_bool(twin->second.value.text) == false) {
    refuse(setting.origin, fmt::format("'{}: offload' contradicts '{}: false' ({}); keep one",
                                       setting.key, twin->second.key, twin->second.origin.place()));
  }
  setting.value.text = "true";
  setting.origin.spelling = setting.key + ": offload";
  layer.insert_or_assign("offload_activations", setting);
}

void imply_checkpointing(Layer& layer, std::vector<std::string>& notes) {
  const auto asked = layer.find("offload_activations");
  if (asked == layer.end() || parse_bool(asked->second.value.text) != true) return;
  const auto checkpointing = layer.find("gradient_checkpointing");
  if (checkpointing == layer.end()) {
    auto setting = asked->second;
    setting.origin.spelling = setting.key;
    notes.push_back(fmt::format("{}: '{}' switches gradient_checkpointing on",
                                setting.origin.place(), setting.key));
    layer.emplace("gradient_checkpointing", std::move(setting));
  } else if (parse_bool(checkpointing->second.value.text) == false) {
    refuse(asked->second.origin,
           fmt::format("'{}' is of what gradient_checkpointing keeps, which is false ({}): drop "
                       "one",
                       asked->second.key, checkpointing->second.origin.place()));
  }
}

void read_do_eval(Layer& layer, std::vector<std::string>& notes) {
  auto node = layer.extract(std::string(kDoEvalKey));
  if (node.empty()) return;
  auto& asked = node.mapped();
  const bool on = asked.value.text == "true";
  const auto strategy = layer.find("eval_strategy");
  if (strategy == layer.end()) {
    if (!on) return;
    notes.push_back(
        fmt::format("{}: 'do_eval' is read as eval_strategy: epoch", asked.origin.place()));
    asked.value.text = "epoch";
  } else {
    // HF evaluates with `do_eval: true` however the strategy reads; only "off" can contradict it.
    const bool off = is_off_word(strategy->second.value.text);
    if (on || off || asked.layer < strategy->second.layer) return;
    if (asked.layer == strategy->second.layer) {
      refuse(asked.origin, fmt::format("'do_eval: false' contradicts '{}: {}' ({}); keep one",
                                       strategy->second.key, strategy->second.value.shown(),
                                       strategy->second.origin.place()));
    }
    asked.value.text = "no";
  }
  asked.origin.spelling = std::string(kDoEvalKey);
  layer.insert_or_assign("eval_strategy", std::move(asked));
}

void add_environment_timeout(Layer& layer) {
  if (layer.contains("ddp_timeout")) return;
  if (add_timeout(layer, "DEEPSPEED_TIMEOUT", 60, "minutes")) return;
  add_timeout(layer, "NCCL_TIMEOUT", 1, "seconds");
}

void settle_words(RunConfig& config) {
  auto& name = config.checkpoint.experiment_name;
  if (name.empty()) name = config.log.run_name;
  if (config.log.run_name.empty()) config.log.run_name = name;
  // Log records say eval_ of it, and so do other programs.
  auto& metric = config.eval.metric_for_best_model;
  if (metric.starts_with("eval_")) metric.erase(0, 5);
  if (metric.empty()) metric = "loss";
  auto& resume = config.checkpoint.resume_from_checkpoint;
  const auto word = lower(resume);
  if (word.empty() || word == "none" || word == "latest" || word == "auto" ||
      parse_bool(word) == true) {
    resume = "auto";
  } else if (parse_bool(word) == false) {
    resume = "false";
  }
}

std::map<std::string, std::string> idle_keys(const RunConfig& config) {
  std::map<std::string, std::string> idle;
  for (const auto& [key, schedules] : kScheduleKeys) {
    if (std::ranges::count(schedules, config.schedule.lr_scheduler_type) > 0) continue;
    idle[key] = fmt::format("lr_scheduler_type is {}", to_text(config.schedule.lr_scheduler_type));
  }
  if (config.eval.eval_strategy != EvalStrategy::kSteps) {
    idle["eval_steps"] = fmt::format("eval_strategy is {}", to_text(config.eval.eval_strategy));
  }
  if (config.checkpoint.save_strategy != SaveStrategy::kSteps) {
    idle["save_steps"] =
        fmt::format("save_strategy is {}", to_text(config.checkpoint.save_strategy));
  }
  if (config.checkpoint.save_strategy == SaveStrategy::kNo) {
    idle["save_total_limit"] = "save_strategy is no";
  }
  add_loss_scale_keys(config, idle);
  add_offload_keys(config, idle);
  if (config.schedule.lr_scaling == LrScaling::kNone) {
    idle["lr_scaling_base_batch"] = "lr_scaling is none";
  }
  if (config.eval.eval_strategy == EvalStrategy::kNo) {
    for (const auto* key : {"eval_file", "validation_file_dir", "eval_on_start", "max_eval_samples",
                            "per_device_eval_batch_size"}) {
      idle[key] = "eval_strategy is no";
    }
  }
  if (!config.eval.early_stopping_patience) {
    idle["early_stopping_threshold"] = "early_stopping_patience is not given";
  }
  if (config.data.dataloader_num_workers == 0) {
    idle["dataloader_prefetch_factor"] = "dataloader_num_workers is 0";
  }
  if (config.stage == TrainingStage::kPretrain) add_row_keys(idle);
  add_preference_keys(config, idle);
  add_online_keys(config, idle);
  const auto defaults = texts_of(RunConfig());
  const auto texts = texts_of(config);
  std::erase_if(
      idle, [&](const auto& entry) { return texts.at(entry.first) == defaults.at(entry.first); });
  return idle;
}

}  // namespace skein::config
