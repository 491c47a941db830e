// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/continuation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "skein/core/error.h"

namespace skein::train {
namespace {

using nlohmann::ordered_json;

// Keys of config.json that may change without changing what the weights mean.
const std::set<std::string> kNotArchitecture = {"dtype", "torch_dtype", "transformers_version",
                                                "use_cache", "_name_or_path"};

void check_architecture(const fs::path& checkpoint, const plan::HfConfig& model) {
  const auto saved = ordered_json::parse(read_file(checkpoint / "config.json"));
  const auto now = ordered_json::parse(model.source);
  std::vector<std::string> changed;
  for (const auto& [key, value] : now.items()) {
    if (kNotArchitecture.contains(key)) continue;
    if (!saved.contains(key) || saved.at(key) != value) changed.push_back(key);
  }
  for (const auto& [key, value] : saved.items()) {
    if (!now.contains(key) && !kNotArchitecture.contains(key)) changed.push_back(key);
  }
  if (changed.empty()) return;
  throw UserError(fmt::format(
      "{} holds another model than model_name_or_path: {} differ in config.json. Give the old "
      "model, another output_dir, or start over with --fresh",
      checkpoint.string(), fmt::join(changed, ", ")));
}

void check_identity(const fs::path& checkpoint, const DataIdentity& identity) {
  const auto state = ordered_json::parse(read_file(checkpoint / "trainer_state.json"));
  const auto& saved = state.at("stateful_callbacks").at("skein");
  const auto refuse = [&](const char* what, const auto& was, const auto& is) {
    if (was == is) return;
    throw UserError(fmt::format(
        "{} was saved with {} {}, this start has {}: the order of the data would change. Give the "
        "old value, or start over with --fresh",
        checkpoint.string(), what, was, is));
  };
  refuse("a global batch size of", saved.at("global_batch").get<int64_t>(), identity.global_batch);
  refuse("a data seed of", saved.at("data_seed").get<int64_t>(), identity.seed);
  refuse("training data of digest", saved.at("data_digest").get<std::string>(),
         identity.data_digest);
}

void check_optimizer(const fs::path& checkpoint) {
  if (fs::exists(checkpoint / "optimizer.safetensors") ||
      fs::exists(checkpoint / "optimizer.safetensors.index.json")) {
    return;
  }
  throw UserError(
      fmt::format("{} has no optimizer state (save_only_model): it cannot be continued. Use it as "
                  "model_name_or_path of a new run, or start over with --fresh",
                  checkpoint.string()));
}

}  // namespace

void check_continuation(const fs::path& checkpoint, const plan::HfConfig& model,
                        const DataIdentity& identity) {
  check_architecture(checkpoint, model);
  check_identity(checkpoint, identity);
  check_optimizer(checkpoint);
}

}  // namespace skein::train
