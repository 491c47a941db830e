// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where does a start begin?
//
// One decision, the same on all ranks: with a checkpoint, with the first weights, or not at all. It
// reads the folder (the run's record, the manifests, every byte of the checkpoint that it takes)
// and changes nothing; claim_folder() carries it out.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "skein/checkpoint/files/catalog.h"
#include "skein/config/run_config.h"
#include "skein/core/file.h"
#include "skein/train/world.h"

namespace skein::train {

// "First rank" is here the first of those that share the folder: with save_on_each_node every node
// has one, and only what all nodes have counts as there.

struct Beginning {
  std::optional<fs::path> checkpoint;  // none: the first weights
  std::string asked;                   // the folder that resume_from_checkpoint names; else empty
};

// Collective: what resume_from_checkpoint and fresh mean for this folder.
//
// `auto` takes the newest checkpoint of this run that verifies. A checkpoint's folder is the
// beginning of a run: once this run has begun there, its own newer checkpoints win. Throws
// UserError when the named checkpoint is not whole or would be removed (fresh), when `false` meets
// a started run, or when files that skein did not write would be replaced; IoError when something
// cannot be read, or when there are checkpoints of which none can be continued.
Beginning decide_beginning(const config::CheckpointConfig& options, const fs::path& output,
                           World& world);

// Steps of checkpoints to look at: above the first, up to the second.
struct StepRange {
  int64_t above = -1;
  int64_t up_to = std::numeric_limits<int64_t>::max();
};

// Collective: the newest checkpoint of this run that verifies. The ranks that share a folder digest
// a part of the bytes each, and what one of them finds all of them skip. Throws IoError when one of
// them cannot read its part.
std::optional<checkpoint::ListedCheckpoint> newest_checkpoint(const fs::path& output, World& world,
                                                              StepRange range = {});

}  // namespace skein::train
