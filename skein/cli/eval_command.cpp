// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/commands.h"

#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "skein/cli/flag_set.h"
#include "skein/cli/load_model.h"
#include "skein/core/error.h"
#include "skein/train/eval_model.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein eval MODEL --dataset F [--block-size N] [--batch-size 8] [--max-samples N]\n"
    "                 [--dtype auto|float32|bfloat16|float64] [--device auto|cpu|cuda] [--json]\n"
    "\n"
    "Mean loss per token and perplexity of a model folder over a file (.txt, .jsonl with "
    "\"text\",\n"
    ".bin), a comma-separated list of files, or a folder; every sample once. Data to stdout.\n";

struct EvalFlags {
  train::EvalOptions options;
  bool json = false;
};

EvalFlags parse(std::span<const std::string> arguments) {
  EvalFlags result;
  auto& options = result.options;
  std::string device = "auto";
  FlagSet flags("skein eval");
  flags.add("dataset", options.dataset);
  flags.add("block-size", options.block_size);
  flags.add("batch-size", options.batch, /*least=*/1);
  flags.add("max-samples", options.max_samples);
  flags.add("dtype", options.dtype);
  flags.add("device", device);
  flags.add("json", result.json);
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(
        fmt::format("skein eval takes one MODEL folder, not {}\n{}", words.size(), kUsage));
  }
  if (options.dataset.empty()) throw UserError("skein eval needs --dataset FILE");
  const bool cuda = device == "cuda" || (device == "auto" && at::hasCUDA());
  options.model = check_model_folder(words.front());
  options.device = cuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  return result;
}

}  // namespace

int run_eval_command(std::span<const std::string> arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print("{}", kUsage);
    return 0;
  }
  const auto [options, json] = parse(arguments);
  const c10::DeviceGuard guard(options.device);
  const auto result = train::evaluate_model(options);
  if (json) {
    const nlohmann::ordered_json row = {{"eval_loss", result.loss},
                                        {"perplexity", result.perplexity()},
                                        {"num_tokens", result.num_targets},
                                        {"num_samples", result.num_samples}};
    fmt::print("{}\n", row.dump());
  } else {
    fmt::print("eval_loss   {:.6f}\nperplexity  {:.4f}\nnum_tokens  {}\nnum_samples {}\n",
               result.loss, result.perplexity(), result.num_targets, result.num_samples);
  }
  return 0;
}

}  // namespace skein::cli
