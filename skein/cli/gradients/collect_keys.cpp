// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/gradients/collect_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace skein::cli {
namespace {

// Canonical names.
const std::set<std::string> kRead = {
    // The model and its weights
    "model_name_or_path", "adapter_name_or_path", "tokenizer_name_or_path", "new_special_tokens",
    "dtype", "gradient_checkpointing", "quantization_bit", "seed", "full_determinism",
    // The rows
    "stage", "train_file", "train_file_dir", "block_size", "max_train_samples", "bad_lines",
    "template", "chat_template", "mask_history", "train_on_prompt", "excess_length_strategy",
    "preprocessing_num_workers", "data_cache_dir", "overwrite_cache",
    // The ranks
    "distributed_strategy", "device", "ddp_backend", "ddp_timeout", "heartbeat_timeout",
    "join_timeout", "stop_grace", "distributed", "save_on_each_node"};

bool is_given(const config::Origin& origin) {
  return origin.kind == config::Origin::Kind::kFile ||
         origin.kind == config::Origin::Kind::kCommandLine;
}

}  // namespace

std::string idle_collect_keys(const config::Resolved& run, const std::set<std::string>& unused) {
  std::vector<std::string> idle;
  for (const auto& [key, origin] : run.origins) {
    if (!is_given(origin) || (kRead.contains(key) && !unused.contains(key))) continue;
    idle.push_back(origin.spelling.empty() ? key : origin.spelling);
  }
  if (idle.empty()) return "";
  return fmt::format("no effect on gradients: {}", fmt::join(idle, ", "));
}

}  // namespace skein::cli
