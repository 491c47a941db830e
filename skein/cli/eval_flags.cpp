// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/eval_flags.h"

#include <fmt/format.h>

#include "skein/cli/flag_set.h"
#include "skein/cli/model_folder.h"
#include "skein/core/error.h"

namespace skein::cli {
EvalFlags parse_eval_flags(std::span<const std::string> arguments) {
  EvalFlags result;
  FlagSet flags("skein eval");
  flags.add("dataset", result.dataset);
  flags.add("block-size", result.block_size);
  flags.add("batch-size", result.batch_size, /*least=*/1);
  flags.add("max-samples", result.max_samples);
  flags.add("dtype", result.dtype);
  flags.add("device", result.device);
  flags.add("json", result.json);
  const auto words = flags.read(arguments);
  if (words.size() != 1) {
    throw UserError(fmt::format("skein eval takes one MODEL folder, not {} (`skein eval --help`)",
                                words.size()));
  }
  if (result.dataset.empty()) throw UserError("skein eval needs --dataset FILE");
  result.model = check_model_folder(words.front());
  return result;
}

}  // namespace skein::cli
