// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/bench_rollout.h"

#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "skein/cli/flag_set.h"
#include "skein/cli/load_model.h"
#include "skein/core/error.h"
#include "skein/core/random.h"
#include "skein/model/model.h"
#include "skein/ops/device.h"
#include "skein/plan/hf_config.h"
#include "skein/rollout/generate.h"
#include "skein/tensor/dtype.h"
#include "skein/train/profile.h"

namespace skein::cli {

const char* const kRolloutUsage =
    "skein bench rollout MODEL [--rows 64] [--texts ROWS] [--samples 1] [--prompt-tokens 128]\n"
    "                          [--new-tokens 256] [--temperature 1] [--rounds 2]\n"
    "                          [--dtype float32|bfloat16|float16] [--device auto|cpu|cuda|cuda:N]\n"
    "                          [--trace FILE]\n"
    "\n"
    "MODEL is a folder with config.json; weights are drawn. Prints one JSON row: new tokens per\n"
    "second of the best round, seconds until every text has its first token and after, bytes that "
    "a\n"
    "step has to read at least, and bytes per second of that. --samples texts continue one "
    "prompt,\n"
    "--rows are the most at once.\n";

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model, device = "auto", trace;
  bool json = true;  // it always is
  std::optional<DType> dtype;
  std::optional<double> temperature;
  int64_t texts = 0, samples = 1, rows = 64, prompt_tokens = 128, new_tokens = 256, rounds = 2;
};

Options parse(std::span<const std::string> arguments) {
  Options options;
  FlagSet flags("skein bench rollout");
  flags.add("texts", options.texts, /*least=*/1);
  flags.add("samples", options.samples, /*least=*/1);
  flags.add("rows", options.rows, /*least=*/1);
  flags.add("prompt-tokens", options.prompt_tokens, /*least=*/1);
  flags.add("new-tokens", options.new_tokens, /*least=*/2);
  flags.add("temperature", options.temperature);
  flags.add("rounds", options.rounds, /*least=*/1);
  flags.add("dtype", options.dtype);
  flags.add("device", options.device);
  flags.add("trace", options.trace);
  flags.add("json", options.json);
  const auto words = flags.read(arguments);
  if (words.size() != 1) throw UserError(std::string("which model?\n") + kRolloutUsage);
  options.model = words.front();
  if (options.texts == 0) options.texts = options.rows;
  return options;
}

std::vector<rollout::Request> requests_of(const Options& options, int64_t vocabulary) {
  std::vector<rollout::Request> requests;
  uint64_t drawn = 0;
  std::vector<int64_t> prompt;
  for (int64_t text = 0; text < options.texts; ++text) {
    if (text % options.samples == 0) {
      prompt.clear();
      for (int64_t i = 0; i < options.prompt_tokens; ++i) {
        const auto word = random::philox(1, drawn++).word[0];
        prompt.push_back(static_cast<int64_t>(word % static_cast<uint64_t>(vocabulary)));
      }
    }
    requests.push_back({prompt, static_cast<uint64_t>(text / options.samples),
                        static_cast<uint64_t>(text % options.samples)});
  }
  return requests;
}

struct Times {
  double first = 0, rest = 0;  // seconds until every text has a token, and from there on

  double all() const { return first + rest; }
};

Times run_round(rollout::Generator& generator, const std::vector<rollout::Request>& requests,
                rollout::GenerateOptions options) {
  std::vector<bool> has_begun(requests.size());
  size_t waiting = requests.size();
  const auto begin = Clock::now();
  auto first = begin;
  options.on_token = [&](size_t request, int64_t) {
    if (!has_begun[request]) {
      has_begun[request] = true;
      if (--waiting == 0) first = Clock::now();
    }
    return true;
  };
  for (const auto& text : generator.generate(requests, options)) {
    if (std::ssize(text.tokens) == options.max_new_tokens) continue;
    throw UserError(
        fmt::format("a text ended after {} of {} tokens: the model has too few "
                    "positions; give fewer --new-tokens or --prompt-tokens",
                    text.tokens.size(), options.max_new_tokens));
  }
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  return {seconds(first - begin), seconds(Clock::now() - first)};
}

// Of a step with all rows at half of their new tokens: all weights, and the keys and values.
double bytes_per_step(const Options& options, const model::Model& model, int64_t rows) {
  double bytes = 0;
  for (const auto& parameter : model.table().parameters) {
    bytes += static_cast<double>(parameter.numel()) *
             static_cast<double>(c10::elementSize(parameter.dtype));
  }
  const auto page = static_cast<double>(model.make_cache().page_bytes());
  const double length =
      static_cast<double>(options.prompt_tokens) + static_cast<double>(options.new_tokens) / 2;
  return bytes + static_cast<double>(rows) * length * page /
                     static_cast<double>(model::KvCache::kPageTokens);
}

}  // namespace

int bench_rollout(std::span<const std::string> arguments) {
  const auto options = parse(arguments);
  const auto device = device_of(options.device);
  const c10::DeviceGuard guard(device);
  const auto dtype = options.dtype.value_or(device.is_cuda() ? DType::kBF16 : DType::kF32);
  const auto config = plan::read_hf_config(options.model);
  const auto model = model::build(config, {.dtype = tensor::scalar_type_of(dtype)});
  model::materialise(model->table(), device, /*seed=*/1);
  const auto requests = requests_of(options, model->vocab_size());
  const rollout::GenerateOptions generate{
      .sampling = {.temperature = options.temperature.value_or(1)},
      .max_new_tokens = options.new_tokens,
      .max_rows = options.rows,
      .log_probs = true};

  tensor::PlainUnits units;
  rollout::Generator generator(*model, units, device);
  ops::begin_peak(device.is_cuda());
  std::vector<Times> rounds;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first one warms up
    rounds.push_back(run_round(generator, requests, generate));
  }
  if (!options.trace.empty()) {
    train::profile(options.trace, device.is_cuda(),
                   [&] { run_round(generator, requests, generate); });
  }
  const auto best = *std::ranges::min_element(rounds.begin() + 1, rounds.end(), {}, &Times::all);
  const auto rows = std::min(options.rows, options.texts);
  const auto tokens = static_cast<double>(options.texts * options.new_tokens);
  const double step = best.rest / static_cast<double>(options.new_tokens - 1) *
                      static_cast<double>(rows) / static_cast<double>(options.texts);
  const double bytes = bytes_per_step(options, *model, rows);
  const nlohmann::ordered_json row = {
      {"model", options.model},
      {"dtype", dtype_word(dtype)},
      {"device", device.str()},
      {"texts", options.texts},
      {"samples", options.samples},
      {"rows", rows},
      {"prompt_tokens", options.prompt_tokens},
      {"new_tokens", options.new_tokens},
      {"tokens_per_second", tokens / best.all()},
      {"prefill_seconds", best.first},
      {"decode_seconds", best.rest},
      {"first_round_seconds", rounds.front().all()},
      {"step_us", step * 1e6},
      {"bytes_per_step", bytes},
      {"bytes_per_second", bytes / step},
      {"peak_device_bytes", ops::device_memory(device.is_cuda()).peak}};
  fmt::print("{}\n", row.dump());
  return 0;
}

}  // namespace skein::cli
