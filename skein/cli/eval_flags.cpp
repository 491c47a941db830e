// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/eval_flags.h"

#include <fmt/format.h>

#include "skein/cli/flags.h"
#include "skein/cli/model_folder.h"
#include "skein/core/error.h"

namespace skein::cli {
namespace {

config::Device device_of(const std::string& word) {
  if (word == "auto") return config::Device::kAuto;
  if (word == "cpu") return config::Device::kCpu;
  if (word == "cuda") return config::Device::kCuda;
  throw UserError(fmt::format("--device takes auto, cpu or cuda, not '{}'", word));
}

}  // namespace

EvalFlags parse_eval_flags(std::span<const std::string> arguments) {
  const auto flags = parse_flags(
      "skein eval", arguments,
      {.values = {"dataset", "block-size", "batch-size", "max-samples", "dtype", "device"},
       .switches = {"json"}});
  if (flags.rest.size() != 1) {
    throw UserError(fmt::format("skein eval takes one MODEL folder, not {} (`skein eval --help`)",
                                flags.rest.size()));
  }
  if (flags.text("dataset", "").empty()) throw UserError("skein eval needs --dataset FILE");
  return {.model = check_model_folder(flags.rest.front()),
          .dataset = flags.text("dataset", ""),
          .block_size = flags.number("block-size", 0),
          .batch_size = flags.number("batch-size", 8),
          .max_samples = flags.number("max-samples", 0),
          .dtype = flags.dtype(),
          .device = device_of(flags.text("device", "auto")),
          .json = flags.has("json")};
}

}  // namespace skein::cli
