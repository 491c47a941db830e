// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/export.h"

#include <fmt/format.h>

#include "skein/cli/commands.h"
#include "skein/cli/flag_set.h"
#include "skein/cli/shard_size.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/plan/model_folder.h"

namespace skein::cli {
namespace {

constexpr const char* kUsage =
    "skein export CHECKPOINT --out DIR   a checkpoint becomes a plain model folder\n"
    "\n"
    "  --out DIR               a new folder\n"
    "  --dtype auto            of the weights: auto (as they are), float32, bfloat16, float16\n"
    "  --overwrite             also where DIR holds a model: it is replaced as a whole\n"
    "  --max-shard-size 50GB   larger models are split into files of this size\n"
    "\n"
    "CHECKPOINT is a checkpoint-STEP, a run's final model, or any model folder. A checkpoint's\n"
    "bytes are compared with its manifest first; optimizer and run state are left out.\n";

std::optional<DType> parse_dtype(const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "float32" || text == "fp32") return DType::kF32;
  if (text == "bfloat16" || text == "bf16") return DType::kBF16;
  if (text == "float16" || text == "fp16") return DType::kF16;
  throw UserError(
      fmt::format("--dtype is '{}', expected auto, float32, bfloat16 or float16", text));
}

}  // namespace

int run_export_command(Arguments arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kUsage);
    return 0;
  }
  convert::ExportOptions options;
  std::string out;
  FlagSet flags("skein export");
  flags.add("out", out);
  flags.add("dtype", [&](const std::string& text) { options.dtype = parse_dtype(text); });
  flags.add("overwrite", options.overwrite);
  add_shard_size(flags, options.max_shard_bytes);
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(fmt::format("skein export takes one checkpoint:\n{}", kUsage));
  }
  if (out.empty()) throw UserError("skein export: --out DIR is missing: where shall the model go?");
  options.model = plan::open_weights(words[0]).weights;
  options.out = out;
  const auto summary = convert::export_model(options);
  log_info("{}: {} from {}{}, {} in {}", out, counted(summary.num_tensors, "tensor"), words[0],
           summary.verified ? ", which is whole" : "", shown_bytes(summary.bytes),
           counted(summary.num_files, "file"));
  return 0;
}

}  // namespace skein::cli
