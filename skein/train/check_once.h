// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model's files that all ranks are about to load, compared with their manifest.

#include "skein/checkpoint/files/model_check.h"
#include "skein/train/world.h"

namespace skein::train {

// One rank of every node reads them; its IoError ends the run, whatever the others do meanwhile.
inline void check_once(const fs::path& folder, const World& world) {
  if (world.local_rank == 0) checkpoint::check_model(folder);
}

}  // namespace skein::train
