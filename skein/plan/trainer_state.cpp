// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/trainer_state.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/json.h"

namespace skein::plan {
namespace {

// A log of many steps is long.
constexpr JsonLimits kLimits{.bytes = uint64_t{1} << 30};

int64_t whole_in(const nlohmann::ordered_json& json, const char* key,
                 int64_t lowest = std::numeric_limits<int64_t>::min()) {
  const auto& value = json.at(key);
  if (const auto whole = whole_number(value); whole && *whole >= lowest) return *whole;
  throw IoError(fmt::format("{} is {}", key, value.dump()));
}

int64_t count_in(const nlohmann::ordered_json& json, const char* key) {
  return whole_in(json, key, 0);
}

config::LossScaleRule rule_in(const nlohmann::ordered_json& json) {
  const auto word = json.at("rule").get<std::string>();
  for (const auto& [text, rule] : config::spellings_of(config::LossScaleRule()).known) {
    if (word == text) return rule;
  }
  throw IoError(fmt::format("the rule of the loss scale is '{}'", word));
}

LossScaleState loss_scale_in(const nlohmann::ordered_json& json) {
  LossScaleState state{.scale = json.at("scale").get<double>(),
                       .clean_steps = count_in(json, "clean_steps"),
                       .hysteresis_left = count_in(json, "hysteresis_left"),
                       .num_skipped = count_in(json, "num_skipped")};
  if (json.contains("first_scale")) {
    state.first_scale = json.at("first_scale").get<double>();
    state.rule = rule_in(json);
  }
  if (!(state.scale > 0)) throw IoError(fmt::format("the loss scale is {}", state.scale));
  return state;
}

void check_state(const TrainerState& state) {
  if (state.num_updates / state.updates_per_step > state.step) {
    throw IoError(fmt::format("{} updates in {} steps", state.num_updates, state.step));
  }
  if (!state.history.is_array()) throw IoError("log_history is no list");
  for (const auto& record : state.history) {
    if (!record.is_object()) throw IoError("a record of log_history is no object");
    if (record.contains("step")) count_in(record, "step");
  }
}

// JSON has no NaN and writes null.
double number_in(const nlohmann::ordered_json& record, const std::string& key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

// As transformers decides it, but of two that fall though their names do not say loss.
bool grows_as_it_gets_better(const std::string& metric) {
  return !metric.ends_with("loss") && !metric.ends_with("/rejected") && metric != "perplexity" &&
         metric != "kl";
}

}  // namespace

using nlohmann::ordered_json;

std::string trainer_state_text(const TrainerState& state) {
  ordered_json json = {{"best_global_step", nullptr},
                       {"best_metric", nullptr},
                       {"best_model_checkpoint", nullptr},
                       {"epoch", state.epoch},
                       {"global_step", state.step},
                       {"max_steps", state.identity.total_steps},
                       {"num_input_tokens_seen", state.tokens_seen},
                       {"is_local_process_zero", true},
                       {"is_world_process_zero", true},
                       {"log_history", state.history}};
  if (state.best) {
    json["best_global_step"] = state.best->step;
    json["best_metric"] = state.best->value;
    json["best_model_checkpoint"] = fmt::format("checkpoint-{}", state.best->step);
  }
  json["stateful_callbacks"] = {{"skein",
                                 {{"num_updates", state.num_updates},
                                  {"data_digest", state.identity.data_digest},
                                  {"global_batch", state.identity.global_batch},
                                  {"data_seed", state.identity.seed},
                                  {"block_size", state.identity.block_size}}}};
  const auto& tuning = state.identity.tuning;
  auto& ours = json["stateful_callbacks"]["skein"];
  if (tuning.type != "full") ours["finetuning_type"] = tuning.type;
  if (!tuning.base.empty()) {
    ours["base_model"] = tuning.base;
    ours["base_digest"] = tuning.base_digest;
  }
  if (!state.identity.stage.empty()) ours["stage"] = state.identity.stage;
  if (!state.identity.objective.empty()) ours["objective"] = state.identity.objective;
  if (state.judged_since != 0) ours["judged_since"] = state.judged_since;
  if (state.best) ours["best_metric_name"] = state.best->metric;
  if (!state.identity.reference.digest.empty()) {
    ours["reference_model"] = state.identity.reference.folder;
    ours["reference_digest"] = state.identity.reference.digest;
  }
  if (state.loss_scale) {
    const auto& [scale, first, rule, clean_steps, hysteresis_left, num_skipped] = *state.loss_scale;
    ours["loss_scale"] = {{"scale", scale},
                          {"first_scale", first},
                          {"rule", config::to_text(rule)},
                          {"clean_steps", clean_steps},
                          {"hysteresis_left", hysteresis_left},
                          {"num_skipped", num_skipped}};
  }
  if (state.updates_per_step != 1) ours["updates_per_step"] = state.updates_per_step;
  if (!state.numbers.empty()) ours["numbers"] = state.numbers;
  return json.dump(2) + "\n";
}

TrainerState read_trainer_state(const fs::path& folder) {
  const auto path = folder / kStateFile;
  const auto text = read_file(path, kLimits.bytes);
  try {
    const auto json = parse_ordered_json(text, kLimits);
    const auto& ours = json.at("stateful_callbacks").at("skein");
    TrainerState state{
        .step = count_in(json, "global_step"),
        .tokens_seen = count_in(json, "num_input_tokens_seen"),
        .num_updates = count_in(ours, "num_updates"),
        .updates_per_step =
            ours.contains("updates_per_step") ? whole_in(ours, "updates_per_step", 1) : 1,
        .identity = {.stage = ours.value("stage", ""),
                     .objective = ours.value("objective", ""),
                     .data_digest = ours.at("data_digest").get<std::string>(),
                     .global_batch = count_in(ours, "global_batch"),
                     .seed = whole_in(ours, "data_seed"),
                     .block_size = ours.contains("block_size") ? count_in(ours, "block_size") : 0,
                     .total_steps = count_in(json, "max_steps"),
                     .tuning = {.type = ours.value("finetuning_type", "full"),
                                .base = ours.value("base_model", ""),
                                .base_digest = ours.value("base_digest", "")},
                     .reference = {.folder = ours.value("reference_model", ""),
                                   .digest = ours.value("reference_digest", "")}},
        .history = json.at("log_history")};
    if (json.contains("best_metric") && json.at("best_metric").is_number()) {
      state.best = {.value = json.at("best_metric").get<double>(),
                    .step = count_in(json, "best_global_step"),
                    .metric = ours.value("best_metric_name", "eval_loss")};
    }
    if (ours.contains("judged_since")) state.judged_since = count_in(ours, "judged_since");
    if (const auto found = ours.find("loss_scale"); found != ours.end()) {
      state.loss_scale = loss_scale_in(*found);
    }
    if (ours.contains("numbers")) {
      state.numbers = ours.at("numbers").get<std::map<std::string, double>>();
    }
    check_state(state);
    return state;
  } catch (const JsonError& error) {
    throw IoError(json_message(error, text, path.string()));
  } catch (const std::exception& error) {
    throw IoError(fmt::format("{}: not a state that skein wrote: {}", path.string(), error.what()));
  }
}

std::optional<TrainerState> find_trainer_state(const fs::path& folder) try {
  return read_trainer_state(folder);
} catch (const IoError&) {
  return std::nullopt;
}

int64_t judged_since(const TrainerState& state, const std::string& objective) {
  const auto& saved = state.identity.objective;
  return saved.empty() || saved == objective ? state.judged_since : state.step;
}

BestMetric::BestMetric(const config::EvalConfig& config)
    : key("eval_" + config.metric_for_best_model),
      greater_wins(config.greater_is_better == config::GreaterIsBetter::kAuto
                       ? grows_as_it_gets_better(config.metric_for_best_model)
                       : config.greater_is_better == config::GreaterIsBetter::kYes) {}

double BestMetric::worst() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return greater_wins ? -kInfinity : kInfinity;
}

std::optional<std::string> reason_to_end(const config::EvalConfig& config,
                                         const nlohmann::ordered_json& history, int64_t since) {
  if (!config.early_stopping_patience) return std::nullopt;
  const BestMetric metric(config);
  double best = metric.worst();
  int64_t best_step = 0, without_gain = 0;
  bool is_first = true;
  for (const auto& record : history) {
    if (!record.contains(metric.key) || record.value("step", int64_t{0}) <= since) continue;
    const double value = number_in(record, metric.key);
    const bool helps = is_first || (metric.is_better(value, best) &&
                                    std::abs(best - value) > config.early_stopping_threshold);
    without_gain = helps ? 0 : without_gain + 1;
    is_first = false;
    if (!metric.is_better(value, best)) continue;
    best = value;
    best_step = record.at("step").get<int64_t>();
  }
  if (without_gain < *config.early_stopping_patience) return std::nullopt;
  return fmt::format(
      "{} evaluations in a row were not better by more than {} (early_stopping_patience {}); the "
      "{} {} is {:.4f}, at step {}",
      without_gain, config.early_stopping_threshold, *config.early_stopping_patience,
      metric.greater_wins ? "highest" : "lowest", metric.key, best, best_step);
}

}  // namespace skein::plan
