// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The evaluations of a run: when they are due, what becomes of them, and who makes one that a stop
// has left undone.

#include <cstdint>

#include "skein/train/session.h"
#include "skein/train/stop_agreement.h"

namespace skein::train {

// After step `step`; where the step is saved too, it may become the best model. False: the ranks
// were asked to stop, and a continuation is to evaluate. Collective.
bool evaluate_step(Session& run, int64_t step, double epoch, bool saves, StopAgreement& stop);

// Before this start's first step: eval_on_start, or what is owed. False as above. Collective.
bool evaluate_first(Session& run, int64_t step, StopAgreement& stop);

// What these do with the value that decides which model is the best: of a step that is about to be
// saved, and of one that is. Collective.
void note_evaluation(Session& run, int64_t step, double value);
void note_saved_evaluation(Session& run, int64_t step, double value);

// It was due after this step, and a stop was quicker.
bool owes_evaluation(const Session& run, int64_t step);

}  // namespace skein::train
