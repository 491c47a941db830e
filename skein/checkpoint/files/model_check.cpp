// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/model_check.h"

#include <fmt/format.h>

#include "skein/checkpoint/files/manifest.h"
#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/core/json.h"

namespace skein::checkpoint {
namespace {

// Two keys, so that ours is known for what it is with any one of them damaged. What cannot be read
// as JSON may be ours: the comparison says what is wrong with it.
bool is_of_others(const fs::path& folder) try {
  const auto file = open_beneath(folder, kManifestName);
  if (file.size() > JsonLimits{}.bytes) return false;
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  const auto json = parse_json(text);
  return !json.contains("world") && !json.contains("saved_at");
} catch (const std::exception&) {
  return false;
}

}  // namespace

void refuse_if_gone(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder, ignored)) return;
  throw IoError(
      fmt::format("{} is not there any more: a run that goes on removes its older checkpoints "
                  "(save_total_limit); take a newer one, or copy one first",
                  folder.string()));
}

bool check_model(const fs::path& folder) {
  if (!fs::exists(fs::symlink_status(folder / kManifestName)) || is_of_others(folder)) return false;
  const auto problems = verify_model(folder);
  if (problems.empty()) return true;
  refuse_if_gone(folder);
  const auto& first = problems.front();
  throw IoError(fmt::format("{} {}: {}; `skein checkpoint verify {}` tells more", folder.string(),
                            first.unreadable ? "cannot be read" : "is damaged", first.message(),
                            folder.string()));
}

}  // namespace skein::checkpoint
