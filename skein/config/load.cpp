// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>

#include "skein/config/compat/deepspeed.h"
#include "skein/config/compat/known_keys.h"
#include "skein/config/compat/translated_keys.h"
#include "skein/config/field_index.h"
#include "skein/config/fields.h"
#include "skein/config/implied_settings.h"
#include "skein/config/online_settings.h"
#include "skein/config/step_range.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/values.h"
#include "skein/config/syntax/yaml_reader.h"
#include "skein/core/error.h"

namespace skein::config {
namespace {

using Notes = std::vector<std::string>;

std::vector<std::string> keys_that_work() {
  auto keys = translated_keys();
  for (const auto& [spelling, name] : field_index().canonical) keys.push_back(spelling);
  return keys;
}

[[noreturn]] void refuse_unknown(const Setting& setting) {
  const auto section = setting.key.substr(0, setting.key.find('.'));
  if (field_index().canonical.contains(section)) {
    refuse(setting.origin, fmt::format("'{}' takes a value, not a section", section));
  }
  refuse(setting.origin, fmt::format("unknown key '{}'{}", setting.key,
                                     did_you_mean(setting.key, keys_that_work())));
}

// Of other tools' keys by their beginning (`lora_*`): more likely than a feature that is missing
// is a slip in the name of a key that works.
void check_for_slip(const KeyRule& rule, const Setting& setting) {
  const bool is_pattern = rule.key.ends_with('*') && rule.status == KeyRule::Status::kRefused;
  if (!is_pattern || rule.is_off(setting.value) || is_null(setting.value)) return;
  const auto meant = did_you_mean(setting.key, keys_that_work(), /*most_slips=*/2);
  if (meant.empty()) return;
  refuse(setting.origin, fmt::format("unknown key '{}'{}", setting.key, meant));
}

[[noreturn]] void refuse_second(const std::string& key, const Setting& first,
                                const Setting& second) {
  if (first.key == second.key) {
    refuse(second.origin,
           fmt::format("'{}' is given twice: also at {}", second.key, first.origin.place()));
  }
  refuse(second.origin, fmt::format("'{}' contradicts '{}' ({}): both say what '{}' is; keep one",
                                    second.key, first.key, first.origin.place(), key));
}

// `bf16: false` alone means float32; beside a key that asks for float16 it says nothing more.
bool denies_bf16(const Setting& setting) {
  return setting.key == "bf16" && setting.value.text == "float32";
}

bool is_float16_word(const std::string& text) {
  const auto word = lower(text);
  return word == "float16" || word == "fp16" || word == "half";
}

// Several keys that stand for another may say the same thing (`bf16: true`, `mixed_precision:
// bf16`); `auto` yields, and those that name reporters add up.
bool agree(const std::string& key, Setting& first, const Setting& second) {
  if (key == "report_to") {
    first.value.text += "," + second.value.text;
    return true;
  }
  if (first.value.text == "auto") first = second;
  if (denies_bf16(first) && is_float16_word(second.value.text)) first = second;
  if (denies_bf16(second) && is_float16_word(first.value.text)) return true;
  return second.value.text == "auto" || first.value.text == second.value.text;
}

// `bf16` and `bfloat16`: other words for one value.
bool same_value(const std::string& key, const Setting& one, const Setting& other) {
  if (one.value.text == other.value.text) return true;
  bool same = false;
  RunConfig config;
  fields(config, [&](const std::string& name, auto& member, const About& about) {
    if (name != key) return;
    try {
      assign(one, about, member);
      auto second = member;
      assign(other, about, second);
      same = member == second;
    } catch (const UserError&) {
      same = false;  // told when values are checked
    }
  });
  return same;
}

// `--lr_scheduler_kwargs '{"num_cycles": 2}'`: what would be nested keys in a file.
bool is_inline_object(const Setting& setting) {
  return setting.key.ends_with("_kwargs") && setting.value.text.starts_with('{');
}

std::vector<Setting> inline_members(const Setting& setting) {
  std::vector<Setting> members;
  for (const auto& member : flatten(read_yaml(setting.value.text, setting.origin.place()))) {
    members.push_back({setting.key + "." + member.key, member.value, setting.origin});
    members.back().value.origin = setting.value.origin;
  }
  return members;
}

// What is wrong, told at once: nobody should have to start a program ten times to learn ten things.
class Mistakes {
 public:
  // Runs `check`, and keeps what it refuses.
  void collect(const std::function<void()>& check) {
    try {
      check();
    } catch (const UserError& error) {
      messages_.emplace_back(error.what());
    }
  }
  // Throws UserError when there are any.
  void refuse() const {
    if (messages_.empty()) return;
    constexpr size_t kMost = 20;
    const auto shown = std::span(messages_).first(std::min(messages_.size(), kMost));
    auto text = fmt::format("{}", fmt::join(shown, "\n  "));
    if (messages_.size() > kMost) text += fmt::format("\n  and {} more", messages_.size() - kMost);
    throw UserError(text);
  }

 private:
  std::vector<std::string> messages_;
};

class LayerBuilder {
 public:
  LayerBuilder(bool is_online, Notes& notes) : is_online_(is_online), notes_(notes) {}

  Layer build(const std::vector<Setting>& settings, Mistakes& mistakes) {
    for (const auto& setting : settings) {
      mistakes.collect([&] { add(setting); });
    }
    return std::move(layer_);
  }

 private:
  void add(const Setting& setting) {
    const auto& spellings = field_index().canonical;
    const auto spelling = is_online_ ? online_spelling(setting.key) : setting.key;
    if (const auto found = spellings.find(spelling); found != spellings.end()) {
      if (auto others = translate_value(found->second, setting, notes_)) {
        insert_derived(std::move(*others), setting);
      } else {
        insert(found->second, setting, false);
      }
    } else if (is_inline_object(setting)) {
      for (const auto& member : inline_members(setting)) add(member);
    } else if (is_translated_key(setting.key)) {
      insert_derived(translate(setting, notes_), setting);
    } else if (const auto* known = find_known_key(spelling)) {
      check_for_slip(*known, setting);
      auto note = check_known_key(*known, setting);
      if (!note.empty()) notes_.push_back(std::move(note));
    } else {
      refuse_unknown(setting);
    }
  }

  // What a setting stands for, under the key that was written.
  void insert_derived(std::vector<Setting> resolved, const Setting& setting) {
    for (auto& one : resolved) {
      const auto key = std::exchange(one.key, setting.key);
      insert(key, one, true);
    }
  }

  void insert(const std::string& key, Setting setting, bool is_derived) {
    if (setting.key != key) setting.origin.spelling = setting.key;
    // Other trainers' word for a scale that moves.
    if (key == "loss_scale" && lower(setting.value.text) == "dynamic")
      setting.value.text.assign(1, '0');
    const auto [place, is_new] = layer_.emplace(key, setting);
    if (is_new) {
      if (is_derived) derived_.insert(key);
      return;
    }
    // `packing: true` beside `neat_packing: true`: the one that is meant literally stays.
    if (is_derived != derived_.contains(key)) {
      auto& literal = is_derived ? place->second : setting;
      const auto& derived = is_derived ? setting : place->second;
      const bool denied = denies_bf16(derived) && is_float16_word(literal.value.text);
      if (denied || same_value(key, literal, derived)) {
        place->second = literal;
        derived_.erase(key);
        return;
      }
    }
    const bool may_agree = is_derived && derived_.contains(key) && key != kDeepSpeedKey;
    if (may_agree && agree(key, place->second, setting)) return;
    refuse_second(key, place->second, setting);
  }

  bool is_online_;
  Notes& notes_;
  Layer layer_;
  std::set<std::string> derived_;
};

// `distributed_strategy: deepspeed` leaves the choice to the DeepSpeed file.
bool says_deepspeed(const std::string& key, const Setting& setting) {
  return key == "distributed_strategy" && lower(setting.value.text) == "deepspeed";
}

// Words that are no value of their field, but have rules of their own (implied_settings.h).
bool is_read_later(const std::string& key, const Setting& setting) {
  const bool finds_batch =
      key == "per_device_train_batch_size" && lower(setting.value.text) == "auto";
  const bool offloads = key == "gradient_checkpointing" && is_offload_word(setting.value.text);
  return finds_batch || offloads || says_deepspeed(key, setting);
}

void put_over(Layer& below, Layer above, int layer = 0) {
  for (auto& [key, setting] : above) {
    setting.layer = layer;
    below.insert_or_assign(key, std::move(setting));
  }
}

// A wrong value is refused even where a higher layer would hide it.
void check_values(const Layer& layer, Mistakes& mistakes) {
  RunConfig defaults;
  fields(defaults, [&](const std::string& name, auto& member, const About& about) {
    const auto found = layer.find(name);
    if (found == layer.end() || is_read_later(name, found->second)) return;
    mistakes.collect([&] { assign(found->second, about, member); });
  });
}

using Sources = std::vector<std::vector<Setting>>;

// The files' settings and the command line's over them.
Layer read_explicit(const Sources& sources, Notes& notes) {
  Mistakes mistakes;
  std::vector<Layer> layers;
  const bool is_online = ask_for_online(sources);
  for (const auto& settings : sources) {
    layers.push_back(LayerBuilder(is_online, notes).build(settings, mistakes));
  }
  mistakes.refuse();
  for (const auto& layer : layers) check_values(layer, mistakes);
  mistakes.refuse();
  Layer explicit_layer;
  int number = 0;
  for (auto& layer : layers) put_over(explicit_layer, std::move(layer), number++);
  return explicit_layer;
}

std::optional<std::string> take_text(Layer& layer, std::string_view key) {
  const auto node = layer.extract(std::string(key));
  if (node.empty()) return std::nullopt;
  return node.mapped().value.text;
}

// A DeepSpeed value that an explicit key overrides with another value.
struct Override {
  std::string key, spelling;  // ours, and the file's
  std::string above, below;   // values
  std::string line;           // to be shown
};

std::vector<Override> overridden(const Layer& explicit_layer, const Layer& deepspeed) {
  std::vector<Override> found;
  RunConfig config;
  fields(config, [&](const std::string& name, auto& member, const About& about) {
    const auto above = explicit_layer.find(name), below = deepspeed.find(name);
    if (above == explicit_layer.end() || below == deepspeed.end()) return;
    assign(above->second, about, member);
    auto other = member;
    assign(below->second, about, other);
    if (member == other) return;
    found.push_back({.key = name,
                     .spelling = below->second.origin.spelling,
                     .above = to_text(member),
                     .below = to_text(other),
                     .line = fmt::format("{}: {} ({}) overrides {} ({})", name, to_text(member),
                                         above->second.origin.text(), to_text(other),
                                         below->second.origin.text())});
  });
  return found;
}

// Would HF Trainer refuse it? It compares these keys of a file, where they are written, and of the
// two types each with its own switch.
bool is_mismatch_to_hf(const Override& pair) {
  static const std::set<std::string_view> kCompared = {"train_micro_batch_size_per_gpu",
                                                       "gradient_accumulation_steps",
                                                       "train_batch_size",
                                                       "gradient_clipping",
                                                       "optimizer.params.lr",
                                                       "optimizer.params.betas",
                                                       "optimizer.params.eps",
                                                       "optimizer.params.weight_decay",
                                                       "scheduler.params.warmup_max_lr",
                                                       "scheduler.params.warmup_num_steps",
                                                       "scheduler.params.total_num_steps",
                                                       "fp16.enabled",
                                                       "bf16.enabled"};
  if (!kCompared.contains(pair.spelling)) return false;
  if (pair.key != "dtype") return true;
  const std::string type = pair.spelling == "fp16.enabled" ? "float16" : "bfloat16";
  return (pair.above == type) != (pair.below == type);
}

void drop(Layer& layer, const std::string& key, const std::string& why, Notes& notes) {
  const auto node = layer.extract(key);
  if (node.empty()) return;
  notes.push_back(fmt::format("{}: {} of the DeepSpeed file is dropped: {}",
                              node.mapped().origin.place(), node.mapped().origin.spelling, why));
}

bool differs(const Layer& explicit_layer, const Layer& deepspeed, const std::string& key) {
  const auto above = explicit_layer.find(key), below = deepspeed.find(key);
  if (above == explicit_layer.end() || below == deepspeed.end()) return false;
  return parse_integer(above->second.value.text) != parse_integer(below->second.value.text);
}

// An overridden side of the batch triangle leaves the file's other numbers stale: derive those.
void derive_batch(const Layer& explicit_layer, Layer& deepspeed, Notes& notes) {
  const bool micro = differs(explicit_layer, deepspeed, "per_device_train_batch_size");
  const bool steps = differs(explicit_layer, deepspeed, "gradient_accumulation_steps");
  if (explicit_layer.contains("global_batch_size")) {
    const bool all = explicit_layer.contains("per_device_train_batch_size");
    if (!all && explicit_layer.contains("gradient_accumulation_steps")) {
      drop(deepspeed, "per_device_train_batch_size", "derived from the global batch", notes);
    } else if (differs(explicit_layer, deepspeed, "global_batch_size") || micro) {
      drop(deepspeed, "gradient_accumulation_steps", "derived from the global batch", notes);
    }
  } else if (micro || steps) {
    drop(deepspeed, "global_batch_size", "derived from the overridden numbers", notes);
  }
}

Layer layer_of(const DeepSpeed& file) {
  Layer layer;
  for (const auto& setting : file.settings) {
    const auto [place, is_new] = layer.emplace(setting.key, setting);
    if (!is_new) refuse_second(setting.key, place->second, setting);
  }
  return layer;
}

DsCompat compat_of(const Layer& explicit_layer) {
  auto compat = DeepSpeedScheduleConfig().ds_compat;
  const auto given = explicit_layer.find("ds_compat");
  if (given != explicit_layer.end()) assign(given->second, {}, compat);
  return compat;
}

// A wrong value of the file, under the file's name for it.
void check_file_values(const Layer& layer) {
  Layer spelled = layer;
  for (auto& [key, setting] : spelled) setting.key = setting.origin.spelling;
  Mistakes mistakes;
  check_values(spelled, mistakes);
  mistakes.refuse();
}

// Puts the DeepSpeed file's settings, if one is named, under the explicit ones. An explicit `auto`
// leaves the choice to the file, which is left in `file`.
Layer add_deepspeed(Layer explicit_layer, DeepSpeed& file, Notes& notes) {
  const bool strict = take_text(explicit_layer, kDeepSpeedConflictKey) == "error";
  auto named = explicit_layer.extract(std::string(kDeepSpeedKey));
  if (!named.empty() && is_null(named.mapped().value)) named = {};
  const auto strategy = explicit_layer.find("distributed_strategy");
  const bool by_file =
      strategy != explicit_layer.end() && says_deepspeed(strategy->first, strategy->second);
  if (by_file && named.empty()) {
    refuse(strategy->second.value.origin,
           "'distributed_strategy: deepspeed' takes the stage from a DeepSpeed file, but none is "
           "given; add deepspeed: FILE.json, or write distributed_strategy: zero2");
  }
  if (by_file) explicit_layer.erase(strategy);
  if (named.empty()) return explicit_layer;
  file = read_deepspeed(named.mapped(), compat_of(explicit_layer));
  notes.insert(notes.end(), file.defaults.begin(), file.defaults.end());
  if (!file.summary.empty()) notes.push_back(file.summary);
  auto layer = layer_of(file);
  check_file_values(layer);
  std::erase_if(explicit_layer, [&](const auto& entry) {
    return layer.contains(entry.first) && lower(entry.second.value.text) == "auto";
  });
  Notes mismatches;
  for (const auto& pair : overridden(explicit_layer, layer)) {
    notes.push_back(pair.line);
    if (is_mismatch_to_hf(pair)) mismatches.push_back(pair.line);
  }
  if (strict && !mismatches.empty()) {
    throw UserError(fmt::format(
        "the configuration and the DeepSpeed file disagree (deepspeed_conflict: error):\n  {}",
        fmt::join(mismatches, "\n  ")));
  }
  derive_batch(explicit_layer, layer, notes);
  const auto ratio = explicit_layer.find("warmup_ratio");  // 0, a default, is often spelt out
  if (ratio != explicit_layer.end() && parse_real(ratio->second.value.text) > 0.0) {
    drop(layer, "warmup_steps", "warmup_ratio is given", notes);
  }
  const auto checkpointing = explicit_layer.find("gradient_checkpointing");
  if (checkpointing != explicit_layer.end() && is_off_word(checkpointing->second.value.text)) {
    drop(layer, "offload_activations", "gradient_checkpointing is off", notes);
  }
  put_over(layer, std::move(explicit_layer));
  return layer;
}

void check_decay(const Resolved& resolved, const DeepSpeed& file) {
  if (!file.coupled_decay || resolved.config.optimizer.weight_decay == 0) return;
  refuse(
      *file.coupled_decay,
      fmt::format("'optimizer.params.adam_w_mode: false' with type Adam adds weight_decay ({}) to "
                  "the gradient, which this version does not support: remove it for decoupled "
                  "decay, or set weight_decay to 0",
                  resolved.origin_of("weight_decay").place()));
}

void check_warmup_type(const Resolved& resolved) {
  const auto& schedule = resolved.config.schedule;
  const auto curve = schedule.warmup_type;
  const bool is_stable = schedule.lr_scheduler_type == Schedule::kWarmupStableDecay;
  const bool fits = is_stable
                        ? curve != WarmupCurve::kLog
                        : curve != WarmupCurve::kCosine && curve != WarmupCurve::kOneMinusSqrt;
  if (fits) return;
  refuse(
      resolved.origin_of("warmup_type"),
      fmt::format("'warmup_type' of {} must be {}, not '{}'", to_text(schedule.lr_scheduler_type),
                  is_stable ? "linear, cosine or 1-sqrt" : "linear or log", to_text(curve)));
}

void check_schedule(const Resolved& resolved) {
  const auto& schedule = resolved.config.schedule;
  if (schedule.warmup_steps > 0 && schedule.warmup_ratio > 0) {
    refuse(resolved.origin_of("warmup_ratio"),
           fmt::format("'warmup_ratio' and 'warmup_steps' ({}) both ask for warm-up; "
                       "keep one, or set the other to 0",
                       resolved.origin_of("warmup_steps").place()));
  }
  if (schedule.min_lr > 0 && schedule.min_lr_rate > 0) {
    refuse(resolved.origin_of("min_lr_rate"),
           fmt::format("'min_lr_rate' and 'min_lr' ({}) both say where the rate ends; keep one",
                       resolved.origin_of("min_lr").place()));
  }
  check_warmup_type(resolved);
  // HF has no default for these either.
  const auto type = schedule.lr_scheduler_type;
  const auto need = [&](const char* keys) {
    refuse(resolved.origin_of("lr_scheduler_type"),
           fmt::format("'lr_scheduler_type: {}' needs {}", to_text(type), keys));
  };
  if (type == Schedule::kWarmupStableDecay && schedule.num_decay_steps == 0) {
    need("num_decay_steps");
  }
  if (type == Schedule::kCosineWithMinLr && !resolved.origins.contains("min_lr") &&
      !resolved.origins.contains("min_lr_rate")) {
    need("min_lr or min_lr_rate");
  }
}

// Only a step that is evaluated and saved can become the best model. As in Hugging Face's Trainer:
// both by epochs, or both by steps with the one interval a multiple of the other.
void check_best_model(const Resolved& resolved) {
  const auto& config = resolved.config;
  const bool eval_by_steps = config.eval.eval_strategy == EvalStrategy::kSteps;
  const bool save_by_steps = config.checkpoint.save_strategy == SaveStrategy::kSteps;
  if (eval_by_steps != save_by_steps) {
    refuse(
        resolved.origin_of("load_best_model_at_end"),
        fmt::format("'load_best_model_at_end' needs evaluations and checkpoints at the same "
                    "steps, but eval_strategy is {} and save_strategy {}; give both the same",
                    to_text(config.eval.eval_strategy), to_text(config.checkpoint.save_strategy)));
  }
  if (!eval_by_steps) return;
  const double save = config.checkpoint.save_steps;
  const double eval =
      config.eval.eval_steps > 0 ? config.eval.eval_steps : config.log.logging_steps;
  const double times = save / eval;
  // Below 1 an interval is a share of all steps, which may be any number.
  const bool same_kind = (save < 1) == (eval < 1);
  if (same_kind && std::abs(times - std::round(times)) < 1e-6 && times > 0.5) return;
  refuse(resolved.origin_of("load_best_model_at_end"),
         fmt::format("'load_best_model_at_end' needs an evaluation of every step that is saved: "
                     "save_steps ({}) must be a multiple of {} ({})",
                     save, config.eval.eval_steps > 0 ? "eval_steps" : "logging_steps", eval));
}

void check_profile_steps(const Resolved& resolved) {
  const auto& steps = resolved.config.log.profile_steps;
  if (steps.empty() || parse_step_range(steps)) return;
  refuse(resolved.origin_of("profile_steps"),
         fmt::format("'profile_steps' must be an update or a range of them, as 10-12, not '{}'",
                     steps));
}

// Nodes with folders of their own: each must hold all that is saved.
void check_own_folders(const Resolved& resolved) {
  if (!resolved.config.checkpoint.save_on_each_node) return;
  const auto strategy = resolved.config.parallel.distributed_strategy;
  const auto needs_all = [&](const std::string& what, const char* cure) {
    refuse(resolved.origin_of("save_on_each_node"),
           fmt::format("'save_on_each_node' needs all state on every node, but {} over the nodes; "
                       "use a shared output_dir, or {}",
                       what, cure));
  };
  if (strategy != Strategy::kAuto && strategy != Strategy::kDdp) {
    needs_all(fmt::format("{} spreads it", to_text(strategy)), "distributed_strategy: ddp");
  }
  if (resolved.config.offload.offload_param != Offload::kNone) {
    needs_all(fmt::format("'offload_param' ({}) is for the shards of zero3, which spreads it",
                          resolved.origin_of("offload_param").place()),
              "offload_optimizer alone");
  }
}

// Nothing would be learnt, or the contrary.
void check_preferences(const Resolved& resolved) {
  const auto& keys = resolved.config.preference;
  const auto stage = resolved.config.stage;
  if (stage == TrainingStage::kKto && keys.kto_chosen_weight == 0 &&
      keys.kto_rejected_weight == 0) {
    refuse(resolved.origin_of("kto_rejected_weight"),
           fmt::format("'kto_rejected_weight' and 'kto_chosen_weight' ({}) are both 0: no answer "
                       "would be learnt from; give one of them a weight",
                       resolved.origin_of("kto_chosen_weight").place()));
  }
  const auto& losses = keys.pref_loss;
  const auto is_smoothed = [](PreferenceLoss loss) {
    return loss == PreferenceLoss::kSigmoid || loss == PreferenceLoss::kSimpo;
  };
  const auto loss = std::ranges::find_if(losses, is_smoothed);
  const double smoothing = resolved.config.finetune.label_smoothing_factor;
  if (stage != TrainingStage::kDpo || smoothing < 0.5) return;
  if (losses.empty() || loss != losses.end()) {
    refuse(
        resolved.origin_of("label_smoothing_factor"),
        fmt::format("'label_smoothing_factor' is {}, how often the worse answer was chosen: with "
                    "pref_loss: {} {}; give less than 0.5",
                    smoothing, to_text(losses.empty() ? PreferenceLoss::kSigmoid : *loss),
                    smoothing > 0.5 ? "the rejected answers would be preferred"
                                    : "nothing would be learnt"));
  }
}

void check_combinations(const Resolved& resolved) {
  check_preferences(resolved);
  check_profile_steps(resolved);
  const auto& eval = resolved.config.eval;
  const bool evaluates = eval.eval_strategy != EvalStrategy::kNo;
  const bool saves = resolved.config.checkpoint.save_strategy != SaveStrategy::kNo;
  if (eval.load_best_model_at_end && !(evaluates && saves)) {
    refuse(resolved.origin_of("load_best_model_at_end"),
           fmt::format("'load_best_model_at_end' needs {}; set {}: steps or epoch",
                       evaluates ? "checkpoints" : "evaluations",
                       evaluates ? "save_strategy" : "eval_strategy"));
  }
  if (eval.load_best_model_at_end) check_best_model(resolved);
  if (eval.early_stopping_patience && !evaluates) {
    refuse(resolved.origin_of("early_stopping_patience"),
           "'early_stopping_patience' needs evaluations; set eval_strategy: steps or epoch");
  }
  if (resolved.config.optimizer.nan_policy == NanPolicy::kRollback &&
      resolved.config.checkpoint.save_only_model) {
    refuse(resolved.origin_of("save_only_model"),
           "'save_only_model' leaves nothing that nan_policy: rollback could go back to; drop one");
  }
  check_own_folders(resolved);
}

// Asks for bfloat16 weights: where the dtype is open it becomes that, another one contradicts.
void settle_pure_bf16(Resolved& resolved) {
  if (!resolved.config.optimizer.pure_bf16) return;
  auto& dtype = resolved.config.model.dtype;
  if (dtype && dtype != DType::kBF16) {
    refuse(resolved.origin_of("dtype"),
           fmt::format("dtype is {}, but 'pure_bf16' ({}) trains in bfloat16 alone; drop one",
                       to_text(dtype), resolved.origin_of("pure_bf16").place()));
  }
  if (dtype) return;
  dtype = DType::kBF16;
  resolved.origins["dtype"] = resolved.origin_of("pure_bf16");
  resolved.origins["dtype"].spelling = "pure_bf16";
}

// LLaMA-Factory counts documents in every stage.
void note_samples(Resolved& resolved) {
  const auto origin = resolved.origin_of("max_train_samples");
  if (origin.spelling != kMaxSamplesKey) return;
  resolved.notes.push_back(fmt::format("{}: '{}' is read as max_train_samples: {}", origin.place(),
                                       kMaxSamplesKey,
                                       resolved.config.stage == TrainingStage::kPretrain
                                           ? "blocks of block_size tokens, not documents"
                                       : is_online(resolved.config.stage) ? "prompts"
                                                                          : "rows"));
}

// What is read as something else, or would go unseen: a line each.
void note_readings(Resolved& resolved, const Layer& layer) {
  const auto& config = resolved.config;
  const auto note = [&](const char* key, const std::string& text) {
    resolved.notes.push_back(fmt::format("{}: {}", resolved.origin_of(key).place(), text));
  };
  if (config.offload.offload_param != Offload::kNone &&
      config.offload.offload_optimizer == Offload::kNone && layer.contains("offload_optimizer")) {
    note("offload_optimizer",
         fmt::format("'offload_optimizer: none' has no effect: offload_param: {0} takes the "
                     "optimizer's states along; without offload_param they stay on the device",
                     to_text(config.offload.offload_param)));
  }
  const auto optim = layer.find("optim");
  if (optim != layer.end() && lower(optim->second.value.text).starts_with("paged_")) {
    note("optim", fmt::format("'optim: {}' is read as {}: states are not paged; offload_optimizer: "
                              "cpu keeps them in host memory",
                              optim->second.value.shown(), to_text(config.optimizer.optim)));
  }
  const auto logging = resolved.origin_of("logging_steps");
  if (logging.kind == Origin::Kind::kDeepSpeed &&
      config.log.logging_steps > LogConfig().logging_steps) {
    note("logging_steps",
         fmt::format("'{}' makes log lines rarer than the default: one in {} updates, not {}; "
                     "logging_steps counts more",
                     logging.spelling, config.log.logging_steps, LogConfig().logging_steps));
  }
}

// Which DeepSpeed is meant matters to its file and to its schedules.
void note_compat(Resolved& resolved, bool has_file) {
  const auto type = resolved.config.schedule.lr_scheduler_type;
  const bool is_its_own = type == Schedule::kWarmupLr || type == Schedule::kWarmupDecayLr ||
                          type == Schedule::kWarmupCosineLr || type == Schedule::kOneCycle ||
                          type == Schedule::kLrRangeTest;
  const auto origin = resolved.origin_of("ds_compat");
  if (has_file || is_its_own ||
      resolved.config.schedule.deepspeed.ds_compat == DeepSpeedScheduleConfig().ds_compat) {
    return;
  }
  resolved.notes.push_back(
      fmt::format("{}: 'ds_compat' has no effect: no DeepSpeed file is given, and "
                  "lr_scheduler_type is {}",
                  origin.place(), to_text(type)));
}

Resolved resolve(const Sources& sources) {
  Resolved resolved;
  auto explicit_layer = read_explicit(sources, resolved.notes);
  read_bare_batch_size(explicit_layer, resolved.notes);
  read_do_eval(explicit_layer, resolved.notes);
  if (ask_for_online(sources)) read_prompt_length(explicit_layer, resolved.notes);
  read_offloaded_checkpointing(explicit_layer);
  const auto named = explicit_layer.find(std::string(kDeepSpeedKey));
  const bool has_file = named != explicit_layer.end() && !is_null(named->second.value);
  DeepSpeed file;
  auto layer = add_deepspeed(std::move(explicit_layer), file, resolved.notes);
  resolved.details = std::move(file.notes);
  read_auto_batch_size(layer);
  imply_checkpointing(layer, resolved.notes);
  add_environment_timeout(layer);
  fields(resolved.config, [&](const std::string& name, auto& member, const About& about) {
    const auto found = layer.find(name);
    if (found == layer.end()) return;
    assign(found->second, about, member);
    resolved.origins[name] = found->second.origin;
  });
  settle_words(resolved.config);
  if (is_online(resolved.config.stage)) settle_online(resolved.config, resolved.notes);
  settle_pure_bf16(resolved);
  check_decay(resolved, file);
  check_schedule(resolved);
  check_combinations(resolved);
  note_samples(resolved);
  note_readings(resolved, layer);
  note_compat(resolved, has_file);
  for (const auto& [key, why] : idle_keys(resolved.config)) {
    const auto origin = resolved.origin_of(key);
    // A file whose fp16 is "auto" brings its loss scale for the case that it is needed.
    auto& shown = origin.kind == Origin::Kind::kDeepSpeed ? resolved.details : resolved.notes;
    shown.push_back(fmt::format("{}: '{}' has no effect: {}", origin.place(), key, why));
  }
  return resolved;
}

}  // namespace

Origin Resolved::origin_of(const std::string& key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? Origin() : found->second;
}

namespace {

// Files that have places of their own are often given as the configuration.
void refuse_other_file(const std::string& path, const std::vector<Setting>& settings) {
  const auto has = [&](std::string_view key) {
    return std::ranges::any_of(settings, [&](const Setting& s) { return s.key.starts_with(key); });
  };
  const bool is_deepspeed = has("zero_optimization") || has("fp16.") || has("bf16.") ||
                            has("optimizer.") || has("scheduler.");
  if (is_deepspeed && path.ends_with(".json")) {
    throw UserError(
        fmt::format("'{0}' is a DeepSpeed file, no configuration: give deepspeed={0}", path));
  }
  if (has("model_type") && has("hidden_size")) {
    throw UserError(
        fmt::format("'{}' describes a model, and is no configuration: give its folder, "
                    "model_name_or_path={}",
                    path, std::filesystem::absolute(path).parent_path().string()));
  }
}

}  // namespace

Resolved load(const Arguments& arguments) {
  Sources sources;
  if (arguments.config) {
    sources = read_config_files(*arguments.config);
    refuse_inherited_program(sources);
    refuse_other_file(*arguments.config, sources.back());
  }
  sources.push_back(arguments.overrides);
  return resolve(sources);
}

Resolved load_text(const std::string& yaml, const std::string& path) {
  const auto files = read_config_text(yaml, path);
  refuse_inherited_program(files);
  return resolve(files);
}

Resolved load(std::span<const std::string> words) { return load(parse_arguments(words)); }

std::string to_yaml(const Resolved& resolved, bool with_origins) {
  std::string text;
  auto config = resolved.config;
  fields(config, [&](const std::string& name, auto& member, const About& about) {
    if (!about.saved) return;
    const auto line = fmt::format("{}: {}", name, to_text(member));
    text += with_origins ? fmt::format("{:<44} # {}\n", line, resolved.origin_of(name).text())
                         : line + "\n";
  });
  return text;
}

}  // namespace skein::config
