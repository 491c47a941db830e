// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The output folder of a run: made, swept, and claimed for a start.

#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/file.h"
#include "skein/train/beginning.h"
#include "skein/train/world.h"

namespace skein::train {

// Collective: the first rank makes the folder and sweeps what an interrupted save left. All ranks
// log into logs/. What a started run has written stays as it is: this start may yet be refused.
void open_folder(const fs::path& output, World& world);

// Of this start in this folder: names its checkpoints and temporary files. Alike on the ranks that
// share the folder, new at every start.
std::string start_token(const fs::path& output, const World& world);

// Collective, once nothing can refuse this start any more. The first rank writes down in the run's
// record where it begins: that is the decision. Then it sets newer checkpoints aside, or removes
// the old run (fresh), says which keys have changed since the last start, and writes config.yaml.
void claim_folder(const fs::path& output, const config::Resolved& resolved,
                  const Beginning& beginning, World& world);

// Adds what the start `token` is about to make below the folder to what --fresh removes. For one
// rank of it.
void record_files(const fs::path& output, const std::string& token,
                  const std::vector<fs::path>& paths);

// Collective: plan::has_final_model(), for all that lead a folder.
bool has_final_model(const fs::path& output, int64_t steps, World& world);

}  // namespace skein::train
