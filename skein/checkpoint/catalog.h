// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which checkpoints does a run folder hold, and which of them may go?

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "skein/checkpoint/manifest.h"
#include "skein/core/file.h"

namespace skein::checkpoint {

struct ListedCheckpoint {
  int64_t step = 0;
  fs::path path;
};

struct FoundCheckpoint {
  fs::path path;
  Manifest manifest;
};

std::string checkpoint_name(int64_t step);

// The folders checkpoint-STEP, newest first, whole or not. An absent folder holds none.
std::vector<ListedCheckpoint> list_checkpoints(const fs::path& output);

// verify(), and that it is the checkpoint of the step that its name says.
std::vector<Problem> verify(const ListedCheckpoint& listed, Manifest* manifest = nullptr,
                            Share share = {});
void warn_skipped(const fs::path& checkpoint, const std::vector<Problem>& problems);

// The newest up to step `at_most` that verifies; a warning for each newer one that does not. Reads
// every byte of what it looks at, alone. `latest` is not looked at.
std::optional<FoundCheckpoint> find_latest(const fs::path& output,
                                           int64_t at_most = std::numeric_limits<int64_t>::max());

// What an interrupted run left under temporary names.
std::vector<fs::path> list_temporaries(const fs::path& output);

// Removes them. For rank 0, at start, when no other run writes into the folder.
void sweep_temporaries(const fs::path& output);

// Removes the oldest checkpoints until `limit` are left (0: no limit), never those of `keep_steps`.
void remove_old_checkpoints(const fs::path& output, int64_t limit,
                            const std::vector<int64_t>& keep_steps);

// The disk is full: removes the oldest checkpoint, and says so. Neither those of `keep_steps`, nor
// any that is not older than the newest verified one, which is that of `verified_step` or, where
// there is none of that step, the newest that verifies now. False: none was left to be given up.
bool give_up_oldest(const fs::path& output, int64_t verified_step,
                    const std::vector<int64_t>& keep_steps);

// Renames to a temporary name, then deletes: no half of a folder ever looks like a whole one.
void remove_folder(const fs::path& folder);

}  // namespace skein::checkpoint
