// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: what a start that is alone would go on from.

#include <optional>

#include "skein/checkpoint/files/catalog.h"
#include "skein/core/error.h"

namespace skein::checkpoint {

struct FoundCheckpoint {
  fs::path path;
  Manifest manifest;
};

// The newest that verifies; a warning for each newer one that does not. Throws IoError when one
// cannot be read.
inline std::optional<FoundCheckpoint> find_latest(const fs::path& output) {
  for (const auto& listed : candidates(survey(output, read_record(output)))) {
    FoundCheckpoint found{.path = listed.path, .manifest = {}};
    const auto problems = verify(listed, &found.manifest);
    if (problems.empty()) return found;
    for (const auto& problem : problems) {
      if (problem.unreadable) throw IoError(listed.path.string() + ": " + problem.message());
    }
    warn_skipped(listed.path, problems);
  }
  return std::nullopt;
}

}  // namespace skein::checkpoint
