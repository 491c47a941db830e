// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// When is a run over, and what does it leave?

#include <cstdint>
#include <optional>
#include <string>

#include "skein/train/session.h"

namespace skein::train {

// Did an earlier start end this run? Says so then. Before anything is loaded: without a checkpoint
// to continue; and once `step` steps have been restored. Collective.
bool has_ended(Session& run);
bool has_ended(Session& run, int64_t step);

// Why the run ends before its last step (plan::reason_to_end); alike on all ranks.
std::optional<std::string> reason_to_end(const Session& run);

// Writes the final model: the last, or the best when asked for. Collective. Throws UserError, and
// writes nothing, when every update was left out: there is no result.
void finish(Session& run, int64_t step);

}  // namespace skein::train
