// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which files of a folder may be opened?
//
// File names come from files (an index, a manifest) that a stranger may have written.

#include <string_view>

#include "skein/core/file.h"

namespace skein::checkpoint {

// One component: no slash, no "..", nothing that leaves the folder.
bool is_plain_name(std::string_view name);

// Opens the regular file `name` of `folder` to read. Links must stay inside the folder; the hub
// cache's links from snapshots/X to blobs are followed too. Throws IoError for anything else
// (pipes and devices included, without blocking on them).
File open_beneath(const fs::path& folder, std::string_view name);

}  // namespace skein::checkpoint
