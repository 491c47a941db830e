// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Is a checkpoint that somebody names as model, base or adapter as it was written?

#include "skein/core/file.h"

namespace skein::checkpoint {

// Reads all of it but the optimizer's files. Returns whether there was a manifest to compare with;
// the manifest.json of another program is none. Throws IoError, which names file and tensor.
bool check_model(const fs::path& folder);

// Throws IoError where the folder is not there any more.
void refuse_if_gone(const fs::path& folder);

}  // namespace skein::checkpoint
