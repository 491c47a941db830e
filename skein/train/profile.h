// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A trace of what runs on the CPU and the GPU, readable by chrome://tracing and Perfetto.

#include <functional>

#include "skein/core/file.h"

namespace skein::train {

// Runs `body` under the profiler and writes the trace.
void profile(const fs::path& trace, bool cuda, const std::function<void()>& body);

}  // namespace skein::train
