// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/compat/deepspeed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

#include "skein/config/compat/deepspeed_keys.h"
#include "skein/config/compat/deepspeed_leaves.h"
#include "skein/config/compat/deepspeed_scheduler.h"
#include "skein/config/compat/deepspeed_stage.h"
#include "skein/config/syntax/paths.h"
#include "skein/config/syntax/suggest.h"
#include "skein/config/syntax/values.h"
#include "skein/config/syntax/yaml_reader.h"
#include "skein/core/error.h"
#include "skein/core/file.h"

namespace skein::config {
namespace {

void add_leaves(const Node& map, const std::string& prefix, std::vector<Setting>& leaves) {
  for (const auto& [key, origin, value] : map.members) {
    const auto path = prefix.empty() ? key : prefix + "." + key;
    if (value.kind == Node::Kind::kMap) {
      add_leaves(value, path, leaves);
    } else {
      leaves.push_back({path, value, origin});
    }
  }
}

fs::path find_file(const Node& name) {
  fs::path path = expanded_path(name.text, name.origin);
  std::error_code ignored;  // no name, however long, is more than a file that does not exist
  if (fs::is_regular_file(path, ignored)) return path;
  auto beside = fs::path(name.origin.file).parent_path() / path;
  if (fs::is_regular_file(beside, ignored)) return beside;
  refuse(name.origin, fmt::format("DeepSpeed file '{}' does not exist, neither in the working "
                                  "folder nor as '{}'",
                                  path.string(), beside.string()));
}

Node read_object(const Setting& named) {
  const Node* value = &named.value;
  if (const auto* path = value->find("config_path")) {
    if (value->members.size() > 1) {
      refuse(named.origin,
             "'deepspeed' has 'config_path' and other keys: give the file or the "
             "object, not both");
    }
    value = path;
  }
  if (value->kind == Node::Kind::kMap) return *value;
  if (value->kind != Node::Kind::kScalar) {
    refuse(value->origin, "'deepspeed' takes a JSON file name or an object");
  }
  const auto file = find_file(*value);
  return read_json(read_file(file, 16 << 20), file.string());
}

constexpr std::string_view kProfileStep = "flops_profiler.profile_step";

// What becomes of a key. `kOff`: it asks for nothing.
enum class Fate { kHonoured, kEmulated, kAuto, kNoEffect, kOff };

const char* word_of(Fate fate) {
  switch (fate) {
    case Fate::kHonoured:
      return "honoured";
    case Fate::kEmulated:
      return "emulated";
    case Fate::kAuto:
      return "auto";
    case Fate::kNoEffect:
    case Fate::kOff:
      return "no effect";
  }
  return "";
}

class Reader {
 public:
  Reader(const Setting& named, std::span<const Setting> leaves, DsCompat compat)
      : named_(named), leaves_(leaves), compat_(compat), scheduler_(leaves, compat) {}

  DeepSpeed read() {
    for (const auto& leaf : leaves_) read(leaf);
    check_deepspeed_stage(leaves_);
    add_defaults();
    result_.summary = summary();
    return std::move(result_);
  }

 private:
  void read(const Setting& leaf) {
    const auto* rule = find_deepspeed_rule(leaf.key);
    if (!rule && is_null(leaf.value) && is_deepspeed_section(leaf.key)) {
      return report(leaf, Fate::kOff, "null");
    }
    if (!rule && is_deepspeed_section(leaf.key)) {
      refuse(leaf.value.origin, fmt::format("DeepSpeed key '{}' must be an object, {{…}}, not '{}'",
                                            leaf.key, leaf.value.shown()));
    }
    if (!rule) {
      refuse(leaf.origin, fmt::format("unknown DeepSpeed key '{}'{}", leaf.key,
                                      did_you_mean(leaf.key, deepspeed_key_names())));
    }
    if (is_auto(leaf)) return report(leaf, Fate::kAuto, "the YAML or the default decides");
    switch (rule->status) {
      case KeyRule::Status::kHonoured:
        return honour(leaf, *rule);
      case KeyRule::Status::kEmulated:
        return report(leaf,
                      parse_bool(leaf.value.text) == false ? Fate::kNoEffect : Fate::kEmulated,
                      std::string(rule->detail));
      case KeyRule::Status::kNoEffect:
        return report(leaf, Fate::kNoEffect, std::string(rule->detail));
      case KeyRule::Status::kLaunchFlag:
      case KeyRule::Status::kRefused:
        return refuse_unless_off(leaf, *rule);
    }
  }

  void report(const Setting& leaf, Fate fate, const std::string& detail) {
    result_.notes.push_back(fmt::format("{}: DeepSpeed {} = {}: {} ({})", leaf.origin.place(),
                                        leaf.key, leaf.value.shown(), word_of(fate), detail));
    auto& keys = by_fate_[fate];
    if (keys.empty() || keys.back() != leaf.key)
      keys.push_back(leaf.key);  // one may set two of ours
  }

  // What is in vain is named; of the rest the number is enough.
  std::string summary() {
    std::vector<std::string> parts;
    for (const auto fate : {Fate::kHonoured, Fate::kEmulated, Fate::kAuto}) {
      if (const auto count = by_fate_[fate].size()) {
        parts.push_back(fmt::format("{} {}", count, word_of(fate)));
      }
    }
    if (const auto& vain = by_fate_[Fate::kNoEffect]; !vain.empty()) {
      parts.push_back(fmt::format("{} without effect ({})", vain.size(), fmt::join(vain, ", ")));
    }
    if (parts.empty()) return "";
    return fmt::format("{}: DeepSpeed keys: {}; `skein config show` says more of each",
                       named_.origin.place(), fmt::join(parts, ", "));
  }

  void set(const Setting& leaf, const std::string& key, const Node& value) {
    auto origin = leaf.origin;
    origin.spelling = leaf.key;
    result_.settings.push_back({key, value, origin});
    report(leaf, Fate::kHonoured, fmt::format("{}: {}", key, value.shown()));
  }

  // What DeepSpeed takes when the file says nothing, where our default is another.
  void set_absent(const std::string& path, const std::string& key, const std::string& value) {
    auto origin = named_.origin;
    origin.spelling = fmt::format("DeepSpeed's default of {}", path);
    result_.settings.push_back({key, scalar(value, named_.value.origin), origin});
    result_.defaults.push_back(fmt::format("{}: DeepSpeed {} is absent: {}: {} is its default",
                                           named_.origin.place(), path, key, value));
  }

  void add_defaults() {
    for (const auto& [parameter, key, value] : scheduler_.defaults()) {
      set_absent(fmt::format("scheduler.params.{}", parameter), std::string(key),
                 std::string(value));
    }
    const bool has_rate =
        find_leaf(leaves_, "optimizer.params.lr") || !scheduler_.rate_parameter().empty();
    if (find_leaf(leaves_, "optimizer.type") && !has_rate) {
      set_absent("optimizer.params.lr", "learning_rate", "1e-3");
    }
    if (compat_ == DsCompat::k0_16 && !find_leaf(leaves_, "gradient_clipping")) {
      set_absent("gradient_clipping", "max_grad_norm", "0");
    }
    if (asks_for_fp16()) {
      auto origin = find_leaf(leaves_, "fp16.enabled")->origin;
      origin.spelling = "fp16.enabled";
      result_.settings.push_back({"loss_scaler", scalar("deepspeed", origin), origin});
    }
    if (reporters_ != "tensorboard") {
      auto origin = find_leaf(leaves_, "wandb.enabled")->origin;
      origin.spelling = "wandb.enabled";
      result_.settings.push_back({"report_to", scalar(reporters_, origin), origin});
    }
  }

  using Handler = void (Reader::*)(const Setting&);

  void honour(const Setting& leaf, const KeyRule& rule) {
    static const std::map<std::string_view, Handler> kHandlers = {
        {"zero_optimization.stage", &Reader::set_stage},
        {"zero_optimization.cpu_offload", &Reader::set_offload},
        {"zero_optimization.offload_optimizer.nvme_path", &Reader::set_nvme_path},
        {"zero_optimization.offload_param.nvme_path", &Reader::set_nvme_path},
        {"zero_optimization.cpu_offload_params", &Reader::set_offload},
        {"optimizer.params.betas", &Reader::set_betas},
        {"optimizer.params.lr", &Reader::set_rate},
        {"optimizer.type", &Reader::check_optimizer},
        {"bf16.enabled", &Reader::set_bf16},
        {"bfloat16.enabled", &Reader::set_bf16},
        {"fp16.enabled", &Reader::set_fp16},
        {"data_types.grad_accum_dtype", &Reader::set_accumulation_type},
        {"tensorboard.enabled", &Reader::set_reporter},
        {"wandb.enabled", &Reader::set_reporter},
        {"flops_profiler.enabled", &Reader::set_profiler},
        {kProfileStep, &Reader::check_profile_step},
        {"wall_clock_breakdown", &Reader::set_breakdown},
        {"steps_per_print", &Reader::set_logging},
    };
    if (is_null(leaf.value)) return report(leaf, Fate::kOff, "null");
    const auto handler = kHandlers.find(leaf.key);
    if (handler != kHandlers.end()) return (this->*handler->second)(leaf);
    if (leaf.key.starts_with("scheduler.")) return set_scheduler(leaf);
    if (leaf.key.starts_with("activation_checkpointing.")) return set_recompute(leaf);
    SKEIN_CHECK(!rule.detail.empty(), leaf.key);
    if (leaf.key.starts_with("fp16.") && !asks_for_fp16()) {
      return report(leaf, Fate::kNoEffect, "fp16.enabled is not true");
    }
    set(leaf, std::string(rule.detail), leaf.value);
  }

  static Node word(const Setting& leaf, const std::string& text) {
    return scalar(text, leaf.value.origin);
  }

  static bool as_bool(const Setting& leaf) {
    const auto value = parse_bool(leaf.value.text);
    if (!value) refuse(leaf.value.origin, fmt::format("'{}' must be true or false", leaf.key));
    return *value;
  }

  void set_stage(const Setting& leaf) {
    const auto stage = parse_integer(leaf.value.text);
    if (!stage || *stage < 0 || *stage > 3) {
      refuse(leaf.value.origin,
             fmt::format("'{}' must be 0, 1, 2 or 3, not '{}'", leaf.key, leaf.value.shown()));
    }
    set(leaf, "distributed_strategy",
        word(leaf, *stage == 0 ? "ddp" : fmt::format("zero{}", *stage)));
  }

  // The old spellings.
  void set_offload(const Setting& leaf) {
    if (!as_bool(leaf)) return report(leaf, Fate::kOff, "off");
    const bool of_parameters = leaf.key.ends_with("_params");
    set(leaf, of_parameters ? "offload_param" : "offload_optimizer", word(leaf, "cpu"));
  }

  // There is one folder: that of the optimizer's section, else of the parameters'.
  void set_nvme_path(const Setting& leaf) {
    const auto section = leaf.key.substr(0, leaf.key.rfind('.'));
    const auto* device = find_leaf(leaves_, section + ".device");
    if (!device || lower(device->value.text) != "nvme") {
      return report(leaf, Fate::kNoEffect, "only with device: nvme");
    }
    for (const auto& other : result_.settings) {
      if (other.key != "nvme_path") continue;
      if (other.value.text == leaf.value.text) return report(leaf, Fate::kHonoured, "nvme_path");
      refuse(leaf.origin,
             fmt::format("'{}: {}' and '{}: {}': give one folder", leaf.key, leaf.value.shown(),
                         other.origin.spelling, other.value.shown()));
    }
    set(leaf, "nvme_path", leaf.value);
  }

  bool is_on(std::string_view path) const {
    const auto* leaf = find_leaf(leaves_, path);
    return leaf && parse_bool(leaf->value.text) == true;
  }

  bool asks_for_fp16() const {
    const auto* leaf = find_leaf(leaves_, "fp16.enabled");
    return leaf && (is_auto(*leaf) || is_on("fp16.enabled"));
  }

  bool has_bf16_section() const {
    return std::ranges::any_of(leaves_, [](const Setting& leaf) {
      const bool is_switch = leaf.key == "bf16.enabled" || leaf.key == "bfloat16.enabled";
      return is_switch && !is_null(leaf.value);
    });
  }

  // Where both are off, or the one that is there, DeepSpeed computes in float32.
  void set_fp16(const Setting& leaf) {
    if (!as_bool(leaf)) {
      if (has_bf16_section()) return report(leaf, Fate::kOff, "off; bf16 decides");
      return set(leaf, "dtype", word(leaf, "float32"));
    }
    for (const auto* section : {"bf16.enabled", "bfloat16.enabled"}) {
      const auto* other = find_leaf(leaves_, section);
      if (!other || parse_bool(other->value.text) != true) continue;
      refuse(leaf.value.origin, fmt::format("'{}' and '{}' ({}) are both true: keep one", leaf.key,
                                            section, other->origin.place()));
    }
    set(leaf, "dtype", word(leaf, "float16"));
  }

  // An explicit false must not end up as bfloat16 on a GPU that has it.
  void set_bf16(const Setting& leaf) {
    const bool on = as_bool(leaf);
    if (!on && asks_for_fp16()) return report(leaf, Fate::kOff, "fp16 decides");
    set(leaf, "dtype", word(leaf, on ? "bfloat16" : "float32"));
  }

  void set_betas(const Setting& leaf) {
    if (leaf.value.items.size() != 2) {
      refuse(leaf.value.origin, fmt::format("'{}' must be a list of two numbers", leaf.key));
    }
    for (const int i : {0, 1}) {
      const auto& beta = leaf.value.items[static_cast<size_t>(i)];
      if (lower(beta.text) == "auto") continue;
      set(leaf, fmt::format("adam_beta{}", i + 1), beta);
    }
  }

  // A schedule that names its own rate hides the optimizer's.
  void set_rate(const Setting& leaf) {
    if (scheduler_.rate_parameter().empty()) return set(leaf, "learning_rate", leaf.value);
    report(leaf, Fate::kNoEffect,
           fmt::format("the scheduler's {} counts", scheduler_.rate_parameter()));
  }

  // DeepSpeed's "Adam" is decoupled too, unless adam_w_mode is false.
  void check_optimizer(const Setting& leaf) {
    const auto type = lower(leaf.value.shown());
    if (type != "adamw" && type != "adam") {
      refuse(leaf.value.origin,
             fmt::format("DeepSpeed optimizer '{}' is known, but this version does not support it; "
                         "it has AdamW",
                         leaf.value.shown()));
    }
    report(leaf, Fate::kHonoured, "AdamW with decoupled decay");
    const auto* mode = find_leaf(leaves_, "optimizer.params.adam_w_mode");
    const bool coupled = type == "adam" && mode && parse_bool(mode->value.text) == false;
    if (coupled) result_.coupled_decay = mode->value.origin;
  }

  void set_scheduler(const Setting& leaf) {
    const std::string key(scheduler_.key_of(leaf.key));
    if (key.empty()) {
      const bool is_first_step = leaf.key.ends_with("last_batch_iteration");
      return report(
          leaf, Fate::kNoEffect,
          is_first_step ? "a checkpoint says where its run continues" : "cycle_momentum is false");
    }
    if (key == "warmup_steps" && !parse_integer(leaf.value.text)) {
      refuse(leaf.value.origin,
             fmt::format("'{}' must be a whole number, not '{}'", leaf.key, leaf.value.shown()));
    }
    set(leaf, key, leaf.value);
  }

  void set_accumulation_type(const Setting& leaf) {
    const auto type = lower(leaf.value.shown());
    if (type == "fp32") return set(leaf, "grad_accum_fp32", word(leaf, "true"));
    report(leaf, Fate::kEmulated, "accumulation is always in fp32");
  }

  // DeepSpeed says here how, and the model whether; here a file that asks for any of it means it.
  void set_recompute(const Setting& leaf) {
    const auto count = parse_integer(leaf.value.text);
    const bool on =
        leaf.key.ends_with("number_checkpoints") ? count.value_or(0) > 0 : as_bool(leaf);
    if (!on) return report(leaf, Fate::kOff, "off");
    if (leaf.key.ends_with("cpu_checkpointing")) {
      return set(leaf, "offload_activations", word(leaf, "true"));
    }
    if (recomputes_) return report(leaf, Fate::kEmulated, "gradient_checkpointing is on");
    recomputes_ = true;
    set(leaf, "gradient_checkpointing", word(leaf, "true"));
  }

  void set_reporter(const Setting& leaf) {
    if (!as_bool(leaf)) return report(leaf, Fate::kOff, "off; report_to decides");
    if (leaf.key.starts_with("wandb")) reporters_ = "tensorboard,wandb";
    report(leaf, Fate::kHonoured, fmt::format("report_to: {}", reporters_));
  }

  void set_logging(const Setting& leaf) {
    if (parse_real(leaf.value.text) == 0.0) {
      return report(leaf, Fate::kOff, "off; logging_steps decides");
    }
    set(leaf, "logging_steps", leaf.value);
  }

  // DeepSpeed's own default is update 1.
  void set_profiler(const Setting& leaf) {
    if (!as_bool(leaf)) return report(leaf, Fate::kOff, "off");
    const auto* step = find_leaf(leaves_, kProfileStep);
    const bool is_given = step && !is_auto(*step) && !is_null(step->value);
    set(leaf, "profile_steps", word(leaf, is_given ? step->value.text : "1"));
  }

  void check_profile_step(const Setting& leaf) {
    if (!is_on("flops_profiler.enabled")) {
      return report(leaf, Fate::kNoEffect, "flops_profiler.enabled is not true");
    }
    if (parse_integer(leaf.value.text).value_or(0) < 1) {
      refuse(leaf.value.origin, fmt::format("'{}' must be an update, counted from 1, not '{}'",
                                            leaf.key, leaf.value.shown()));
    }
    report(leaf, Fate::kHonoured, "of profile_steps");
  }

  // Every record has the seconds of each phase; the table is of the first update that has its
  // memory already.
  void set_breakdown(const Setting& leaf) {
    if (!as_bool(leaf)) return report(leaf, Fate::kOff, "off");
    if (is_on("flops_profiler.enabled")) return report(leaf, Fate::kHonoured, "of profile_steps");
    set(leaf, "profile_steps", word(leaf, "2"));
  }

  void refuse_unless_off(const Setting& leaf, const KeyRule& rule) {
    if (rule.is_off(leaf.value)) return report(leaf, Fate::kOff, "off");
    if (is_null(leaf.value)) return report(leaf, Fate::kOff, "null");
    refuse(leaf.origin,
           fmt::format("DeepSpeed key '{}' is known, but this version does not support "
                       "it: {}",
                       leaf.key, rule.detail));
  }

  const Setting& named_;
  std::span<const Setting> leaves_;
  DsCompat compat_;
  DeepSpeedScheduler scheduler_;
  bool recomputes_ = false;
  std::string reporters_ = "tensorboard";  // our default
  std::map<Fate, std::vector<std::string>> by_fate_;
  DeepSpeed result_;
};

}  // namespace

DeepSpeed read_deepspeed(const Setting& named, DsCompat compat) {
  std::vector<Setting> leaves;
  add_leaves(read_object(named), "", leaves);
  return Reader(named, leaves, compat).read();
}

}  // namespace skein::config
