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

// How weights lie in memory: as in the file, or beside adapters in 4 bits and, where they are not
// of linear layers, in 16.
enum class Held { kFull, kFourBits };

// Words for run_on_processes(). `small` is loaded first, so that code and what libraries keep is
// there already.
std::string load_text(int stage, const fs::path& small, const fs::path& model,
                      Held held = Held::kFull);

// What this rank's memory has grown by, at the most, as a share of the file's bytes (of kFourBits,
// of their half: the model in 16 bits): weights sharded and loaded as a run does it, less gradients
// and optimizer states.
std::string run_load_text(const std::string& text, comm::Group& world);

}  // namespace skein::ranks
