// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/hub_name.h"

#include <fmt/format.h>

#include <algorithm>

namespace skein::plan {

std::string download_advice(const fs::path& folder) {
  const auto name = folder.string();
  const bool is_hub_name = !name.empty() && std::ranges::count(name, '/') <= 1 &&
                           name.front() != '/' && name.front() != '.' && name.front() != '~' &&
                           name.back() != '/';
  if (!is_hub_name || fs::exists(folder)) return "";
  return fmt::format(
      ", and skein never downloads one. If it is a name on the Hugging Face hub: `hf download {} "
      "--local-dir {}`, then give {}",
      name, folder.filename().string(), folder.filename().string());
}

}  // namespace skein::plan
