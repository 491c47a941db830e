// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include "skein/core/file.h"

namespace skein::cli {

// The folder, if it can hold a model; a run's folder that has none yet is answered with the name of
// its latest checkpoint. Throws UserError.
fs::path check_model_folder(const fs::path& folder);

}  // namespace skein::cli
