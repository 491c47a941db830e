// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// When is a run over, and what does it leave?

#include <cstdint>
#include <optional>
#include <string>

#include "skein/train/session.h"

namespace skein::train {

enum class Outcome { kFinished, kStopped };

// Did an earlier start end this run? Says so then. Before anything is loaded: without a checkpoint
// to continue; and once `step` steps have been restored. Collective.
bool has_ended(Session& run);
bool has_ended(Session& run, int64_t step);

// Why the run ends before its last step (plan::reason_to_end); alike on all ranks.
std::optional<std::string> reason_to_end(const Session& run);

// Writes the final model: the last, or the best when asked for. Collective. Throws UserError, and
// writes nothing, when every update was left out: there is no result.
void finish(Session& run, int64_t step);

// Begins to save a step. What stops saves and no more: what is beyond save_total_limit goes with
// the next save. Collective.
void save_step(Session& run, int64_t step, bool stopping);

// After the last step of a start: waits for its save, and finishes the run, or says how it goes on.
// Throws IoError when the last step could not be saved. Collective.
Outcome conclude(Session& run, int64_t step, bool stopping);

}  // namespace skein::train
