// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The verbs of `skein gradients`, one file each. Each is given the words after its own.
//
// Signals that ask for a stop are held when they are called (core/stop_signals.h).

#include "skein/cli/commands.h"
#include "skein/cli/flag_set.h"

namespace skein::cli {

int collect_gradients(Arguments arguments);
int merge_gradients(Arguments arguments);
int score_gradients(Arguments arguments);
int select_by_scores(Arguments arguments);
int selftest_gradients(Arguments arguments);

// LESS's flags that have another name here, refused with what to type.
void add_less_flags(FlagSet& flags);

}  // namespace skein::cli
