// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Has somebody asked this rank to stop? The loop looks once a step, then saves and exits with 75.

namespace skein::launch {

// SIGTERM, SIGUSR1 and the first SIGINT ask; a second SIGINT exits at once with 130.
void install_stop_handlers();

bool stop_requested();

}  // namespace skein::launch
