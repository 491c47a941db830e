// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/adapter_base.h"

#include <fmt/format.h>

#include "skein/adapter/adapter_config.h"
#include "skein/checkpoint/files/weights_digest.h"
#include "skein/core/error.h"
#include "skein/plan/trainer_state.h"

namespace skein::plan {
namespace {

struct Base {
  std::string name, digest;  // no digest: nobody knows
};

std::string digest_of(const fs::path& folder) {
  return checkpoint::weights_digest(checkpoint::open_model_files(folder));
}

Base recorded_base(const fs::path& adapter) {
  const auto named = adapter::read_adapter_config(adapter).base_model;
  if (const auto state = find_trainer_state(adapter);
      state && !state->identity.tuning.base.empty()) {
    return {state->identity.tuning.base, state->identity.tuning.base_digest};
  }
  std::error_code ignored;
  if (!fs::exists(fs::path(named) / "config.json", ignored)) return {};
  try {
    return {named, digest_of(named)};
  } catch (const UserError&) {
    return {};  // no weights that we read
  }
}

}  // namespace

void check_adapter_base(const fs::path& adapter, const GivenBase& base) {
  const auto [name, digest] = recorded_base(adapter);
  if (digest.empty()) return;
  const auto own = digest_of(base.folder);
  if (own == digest) return;
  throw UserError(fmt::format(
      "{} is an adapter of {} (digest {}), and {} is {} (digest {}): an adapter is "
      "worth nothing beside other weights. {}",
      adapter.string(), name, digest, base.said_by, base.folder.string(), own, base.cure));
}

}  // namespace skein::plan
