// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/bench_command.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "skein/core/error.h"
#include "skein/train/bench.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein bench train MODEL [--batch 8] [--tokens 1024] [--steps 20] [--warmup 5] [--zero 0]\n"
    "                        [--dtype float32|bfloat16|float64] [--device cpu|cuda] [--recompute]\n"
    "                        [--trace FILE]\n"
    "\n"
    "MODEL is a folder with config.json. Prints one JSON row: tokens per second of the median "
    "step,\n"
    "milliseconds, peak memory, and the first and last loss (the last must be lower).\n";

using Values = std::map<std::string, std::string>;

int64_t number(const Values& values, const std::string& flag, int64_t otherwise) {
  const auto found = values.find(flag);
  if (found == values.end()) return otherwise;
  int64_t value = 0;
  const auto& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UserError(fmt::format("{} takes a whole number, not '{}'", flag, text));
  }
  return value;
}

at::ScalarType dtype_of(const std::string& word) {
  if (word == "float32") return at::kFloat;
  if (word == "bfloat16") return at::kBFloat16;
  if (word == "float64") return at::kDouble;
  throw UserError(fmt::format("--dtype takes float32, bfloat16 or float64, not '{}'", word));
}

train::BenchOptions parse(std::span<const std::string> arguments) {
  Values values;
  std::string model;
  bool recompute = false;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const auto& word = arguments[i];
    if (word == "--recompute") {
      recompute = true;
    } else if (word.starts_with("--")) {
      if (i + 1 == arguments.size()) throw UserError(word + " needs a value");
      values[word] = arguments[++i];
    } else {
      model = word;
    }
  }
  if (model.empty()) throw UserError(std::string("which model?\n") + kUsage);
  const bool cuda = values.contains("--device") ? values["--device"] == "cuda" : at::hasCUDA();
  const auto dtype = values.contains("--dtype") ? values["--dtype"] : cuda ? "bfloat16" : "float32";
  return {.model = model,
          .rows = number(values, "--batch", 8),
          .tokens = number(values, "--tokens", 1024),
          .warmup_steps = number(values, "--warmup", 5),
          .steps = number(values, "--steps", 20),
          .stage = static_cast<int>(number(values, "--zero", 0)),
          .recompute = recompute,
          .dtype = dtype_of(dtype),
          .device = cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU),
          .trace = values.contains("--trace") ? values["--trace"] : ""};
}

}  // namespace

int run_bench_command(std::span<const std::string> arguments) {
  if (arguments.empty() || arguments[0] != "train") {
    fmt::print("{}", kUsage);
    return arguments.empty() || arguments[0] == "--help" ? 0 : 2;
  }
  const auto options = parse(arguments);
  const c10::DeviceGuard guard(options.device);
  const auto result = train::bench_training(options);
  const double seconds = result.median_seconds();
  const auto tokens = static_cast<double>(options.rows * options.tokens);
  const nlohmann::ordered_json row = {{"model", options.model.string()},
                                      {"parameters", result.num_parameters},
                                      {"batch", options.rows},
                                      {"tokens", options.tokens},
                                      {"stage", options.stage},
                                      {"dtype", c10::toString(options.dtype)},
                                      {"device", options.device.str()},
                                      {"tokens_per_second", tokens / seconds},
                                      {"milliseconds", seconds * 1e3},
                                      {"peak_flat_bytes", result.peak_flat_bytes},
                                      {"peak_device_bytes", result.peak_device_bytes},
                                      {"first_loss", result.first_loss},
                                      {"last_loss", result.last_loss}};
  fmt::print("{}\n", row.dump());
  if (result.last_loss < result.first_loss) return 0;
  throw InternalError("the loss did not fall: the figure is of no use");
}

}  // namespace skein::cli
