// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which files of a folder may be opened?
//
// File names come from files (an index, a manifest) that a stranger may have written, and so may
// the folder itself: a link in it could point at anything that the user can read.

#include <string>
#include <string_view>

#include "skein/core/file.h"

namespace skein {

// One component: no slash, no "..", nothing that leaves the folder.
bool is_plain_name(std::string_view name);

// The same, or one in a folder: "folder/name".
bool is_file_name(std::string_view name);

// Opens the regular file `name`, as is_file_name() takes it, of `folder` to read. Links must stay
// inside the folder; the hub cache's links from snapshots/X to blobs are followed too. Throws
// IoError for anything else (pipes and devices included, without blocking on them).
File open_beneath(const fs::path& folder, std::string_view name);

// The text of the file `path` of `folder`, under the same rules; `path` is plain names, one below
// the other. Throws IoError when the file is larger than `limit`.
std::string read_beneath(const fs::path& folder, const fs::path& path,
                         uint64_t limit = uint64_t{1} << 30);

}  // namespace skein
