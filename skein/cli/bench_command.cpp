// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/bench_command.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "skein/cli/flags.h"
#include "skein/core/error.h"
#include "skein/tensor/dtype.h"
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
    "milliseconds, seconds that drawing the first weights took, peak memory, and the first and "
    "last\n"
    "loss (the last must be lower).\n";

train::BenchOptions parse(std::span<const std::string> arguments) {
  const auto flags = parse_flags(
      "skein bench train", arguments,
      {.values = {"batch", "tokens", "steps", "warmup", "zero", "dtype", "device", "trace"},
       .switches = {"recompute"}});
  if (flags.rest.size() != 1) throw UserError(std::string("which model?\n") + kUsage);
  const auto device = flags.text("device", at::hasCUDA() ? "cuda" : "cpu");
  const bool cuda = device == "cuda";
  return {
      .model = flags.rest.front(),
      .rows = flags.number("batch", 8),
      .tokens = flags.number("tokens", 1024),
      .warmup_steps = flags.number("warmup", 5),
      .steps = std::max<int64_t>(1, flags.number("steps", 20)),
      .stage = static_cast<int>(flags.number("zero", 0)),
      .recompute = flags.has("recompute"),
      .dtype = tensor::scalar_type_of(flags.dtype().value_or(cuda ? DType::kBF16 : DType::kF32)),
      .device = cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU),
      .trace = flags.text("trace", "")};
}

}  // namespace

int run_bench_command(std::span<const std::string> arguments) {
  if (arguments.empty() || arguments[0] != "train") {
    fmt::print("{}", kUsage);
    return arguments.empty() || arguments[0] == "--help" ? 0 : 2;
  }
  const auto options = parse(arguments.subspan(1));
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
                                      {"first_weights_seconds", result.first_weights_seconds},
                                      {"peak_flat_bytes", result.peak_flat_bytes},
                                      {"peak_device_bytes", result.peak_device_bytes},
                                      {"first_loss", result.first_loss},
                                      {"last_loss", result.last_loss}};
  fmt::print("{}\n", row.dump());
  if (result.last_loss < result.first_loss) return 0;
  throw InternalError("the loss did not fall: the figure is of no use");
}

}  // namespace skein::cli
