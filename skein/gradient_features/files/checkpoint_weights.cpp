// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/checkpoint_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/json.h"

namespace skein::gradient_features {
namespace {

constexpr const char* kStateFile = "trainer_state.json";
constexpr JsonLimits kLimits{.bytes = uint64_t{256} << 20, .depth = 16};

struct LoggedRate {
  double step = 0;
  double rate = 0;
};

struct State {
  size_t place = 0;  // in the list of checkpoints
  int64_t step = 0;
  std::vector<LoggedRate> rates;
};

std::vector<LoggedRate> rates_in(const JsonObject& json) {
  const auto* history = json.find("log_history");
  if (!history || !history->is_array()) json.refuse_value("log_history", "a list of records");
  std::vector<LoggedRate> rates;
  for (const auto& record : *history) {
    if (!record.is_object()) continue;
    const auto step = record.find("step"), rate = record.find("learning_rate");
    if (step == record.end() || rate == record.end()) continue;
    if (!step->is_number() || !rate->is_number()) continue;
    rates.push_back({step->get<double>(), rate->get<double>()});
  }
  return rates;
}

State read_state(const fs::path& checkpoint, size_t place) {
  std::error_code ignored;
  if (!fs::exists(checkpoint / kStateFile, ignored)) {
    throw UserError(fmt::format(
        "{} has no {}, of which the weights follow: give a checkpoint-N of a run, or --weights",
        checkpoint.string(), kStateFile));
  }
  const auto json = JsonObject::read(checkpoint / kStateFile, kLimits);
  State state{.place = place, .rates = rates_in(json)};
  json.read("global_step", state.step);
  return state;
}

// Of the records after step `before`, up to the checkpoint's.
double mean_rate(const State& state, int64_t before, const fs::path& checkpoint) {
  double sum = 0;
  int64_t count = 0;
  for (const auto& [step, rate] : state.rates) {
    if (step <= static_cast<double>(before) || step > static_cast<double>(state.step)) continue;
    sum += rate;
    ++count;
  }
  if (count > 0) return sum / static_cast<double>(count);
  throw UserError(
      fmt::format("{}: log_history has no learning_rate after step {} up to {}: give --weights",
                  (checkpoint / kStateFile).string(), before, state.step));
}

}  // namespace

std::vector<double> mean_learning_rates(const std::vector<fs::path>& checkpoints) {
  std::vector<State> states;
  for (const auto& checkpoint : checkpoints) {
    states.push_back(read_state(checkpoint, states.size()));
  }
  std::ranges::sort(states, {}, &State::step);
  std::vector<double> weights(checkpoints.size());
  int64_t before = 0;
  for (const auto& state : states) {
    weights[state.place] = mean_rate(state, before, checkpoints[state.place]);
    before = state.step;
  }
  return weights;
}

}  // namespace skein::gradient_features
