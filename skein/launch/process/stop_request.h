// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Has somebody asked this rank to stop? The loop looks once a step, then saves and exits with 75.

namespace skein::launch {

// The signals of core/stop_signals.h ask, those that were held first; a second SIGINT exits at once
// with 130.
void install_stop_handlers();

bool stop_requested();

}  // namespace skein::launch
