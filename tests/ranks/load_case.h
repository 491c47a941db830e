// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much larger does a rank become by loading a model? Asked of processes: threads share one
// size.

#include <string>

#include "skein/comm/group.h"
#include "skein/core/file.h"

namespace skein::ranks {

// Writes first weights of a Llama with so many channels, in fp32: what load_text() names.
fs::path make_model(const fs::path& folder, int64_t channels);

// Words for run_on_processes(). `small` is loaded first, so that code and what libraries keep is
// there already.
std::string load_text(int stage, const fs::path& small, const fs::path& model);

// What this rank's memory has grown by, at the most, as a share of the model's bytes: weights
// sharded and loaded as a run does it, less gradients and optimizer states.
std::string run_load_text(const std::string& text, comm::Group& world);

}  // namespace skein::ranks
