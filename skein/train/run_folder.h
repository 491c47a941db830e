// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The output folder of a run: made, swept, and asked where to go on.

#include <limits>
#include <optional>

#include "skein/config/load.h"
#include "skein/core/file.h"
#include "skein/train/world.h"

namespace skein::train {

// "First rank" is here the first of those that share the folder: with save_on_each_node every node
// has one, and only what all nodes have counts as there.

// Collective: the first rank makes the folder and sweeps what an interrupted save left. All ranks
// log into logs/. What a started run has written stays as it is: this start may yet be refused.
void open_folder(const fs::path& output, World& world);
// Collective, once nothing can refuse this start any more: the first rank removes the old run
// (fresh) and writes config.yaml.
void claim_folder(const fs::path& output, const config::Resolved& resolved, World& world);

// Collective: the newest checkpoint of a step up to `at_most` that verifies. The ranks that share a
// folder digest a part of the bytes each, and what one of them finds all of them skip.
std::optional<fs::path> newest_checkpoint(const fs::path& output, World& world,
                                          int64_t at_most = std::numeric_limits<int64_t>::max());
// Collective: what resume_from_checkpoint and fresh mean for this folder; none: start from the
// beginning. Throws UserError when the named checkpoint is not whole or would be removed (fresh),
// or when `false` meets a started run.
std::optional<fs::path> checkpoint_to_continue(const config::CheckpointConfig& options,
                                               const fs::path& output, World& world);

// Collective: was the final model of a run of so many steps written here? A run can end between its
// last checkpoint and that.
bool has_final_model(const fs::path& output, int64_t steps, World& world);

}  // namespace skein::train
