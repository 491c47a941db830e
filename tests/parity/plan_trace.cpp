// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// For the parity tests: what the schedule and the loss scaler say, one number per line.
//
//   plan_trace rates UPDATES key=value…    the learning rate of each update
//   plan_trace scales STEPS key=value…     the loss scale after each step; an 'x' is an overflow
//
// After an overflow that ends the run, 'end' is the last line.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/plan/rates/loss_scaler.h"
#include "skein/plan/rates/schedule.h"

namespace {

using namespace skein;

void print_rates(const config::RunConfig& config, int64_t count) {
  for (int64_t step = 0; step < count; ++step) {
    fmt::print("{}\n", plan::learning_rate(config.schedule, config.optimizer.learning_rate, step,
                                           config.schedule.max_steps));
  }
}

void print_scales(const config::RunConfig& config, const std::string& steps) try {
  plan::LossScaler scaler(config.loss_scale, config.schedule.deepspeed.ds_compat);
  for (const char step : steps) {
    scaler.update(step == 'x');
    fmt::print("{}\n", scaler.scale());
  }
} catch (const UserError&) {
  fmt::print("end\n");
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 2) throw UserError("what, and of how much");
  const auto config = config::load(std::vector(words.begin() + 2, words.end())).config;
  if (words[0] == "rates") {
    print_rates(config, std::stoll(words[1]));
  } else {
    print_scales(config, words[1]);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 2;
}
