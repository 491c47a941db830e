// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "skein/cli/flag_set.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"

namespace skein::cli {

// --max-shard-size 5GB, as transformers spells it.
inline void add_shard_size(FlagSet& flags, uint64_t& bytes) {
  flags.add("max-shard-size", [&bytes](const std::string& text) {
    const auto value = config::parse_integer(text);
    if (!value || *value < 1) {
      throw UserError(fmt::format("--max-shard-size is '{}', expected a size such as 5GB", text));
    }
    bytes = static_cast<uint64_t>(*value);
  });
}

}  // namespace skein::cli
