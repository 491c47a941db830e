// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which checkpoints does a run folder hold, whose are they, and which of them may go?

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "skein/checkpoint/files/manifest.h"
#include "skein/checkpoint/files/run_record.h"
#include "skein/core/file.h"

namespace skein::checkpoint {

struct ListedCheckpoint {
  int64_t step = 0;
  fs::path path;
};

std::string checkpoint_name(int64_t step);

// The folders checkpoint-STEP, newest first, whole or not. An absent folder holds none. Throws
// IoError when the folder cannot be listed.
std::vector<ListedCheckpoint> list_checkpoints(const fs::path& output);

// What a folder checkpoint-STEP is to the run of the folder that holds it.
enum class Relation {
  kOwn,       // of this run, on the branch that it follows
  kLeft,      // of this run, which has begun again at an earlier step or is being removed
  kStranger,  // another run's
  kUnknown,   // its manifest is absent or was not accepted
};

struct SurveyedCheckpoint {
  ListedCheckpoint listed;
  Relation relation = Relation::kUnknown;
  std::string run;           // token of its manifest
  bool has_manifest = true;  // though perhaps one that was not accepted
};

// Reads the manifests, newest first. Without a record, as older programs left a folder, every
// accepted manifest is the run's own. Throws IoError when a manifest cannot be read.
std::vector<SurveyedCheckpoint> survey(const fs::path& output,
                                       const std::optional<RunRecord>& record);

// Those that a start may go on from, if they verify, newest first: the run's own. And the unknown,
// of which verify() says what is wrong.
std::vector<ListedCheckpoint> candidates(const std::vector<SurveyedCheckpoint>& survey);

// Has a start of this folder's run, or the one called `token`, written what lies at `checkpoint`?
bool is_of_run(const fs::path& output, const fs::path& checkpoint, const std::string& token);

// The name under which a folder stays, out of the way: checkpoint-STEP.aside-TOKEN. Nothing lists,
// counts or removes it.
fs::path aside_name(const fs::path& checkpoint, const std::string& token);

// verify(), and that it is the checkpoint of the step that its name says.
std::vector<Problem> verify(const ListedCheckpoint& listed, Manifest* manifest = nullptr,
                            const Share& share = {});
void warn_skipped(const fs::path& checkpoint, const std::vector<Problem>& problems);

// What an interrupted run left under temporary names.
std::vector<fs::path> list_temporaries(const fs::path& output);

// Removes them. For rank 0, at start, when no other run writes into the folder.
void sweep_temporaries(const fs::path& output);

struct Rotation {
  int64_t limit = 0;                          // 0: keep all
  int64_t written_step = 0;                   // just committed, by
  std::string token;                          // this start
  std::vector<int64_t> protected_steps = {};  // stay like the one just written, whatever the limit
  std::function<void(uint64_t bytes)> on_read = {};
};

// Removes the oldest checkpoints of this run until `limit` are left. Others are neither counted nor
// removed; nor is one of this run that does not verify. Before anything is removed every byte of
// the checkpoint just written is read, and of the newest other one that stays. One that cannot be
// removed is warned of, and the others go.
void remove_old_checkpoints(const fs::path& output, const Rotation& rotation);

struct GiveUp {
  std::string token;  // of this start
  std::vector<int64_t> keep_steps;
};

// The disk is full: removes the oldest checkpoint of this run, and says so. Neither those of
// `keep_steps`, nor any that is not older than the newest that verifies now: it is read. False:
// none was left to be given up.
bool give_up_oldest(const fs::path& output, const GiveUp& what);

// Renames to a temporary name, or removes the manifest, then deletes: no half of a folder ever
// looks like a whole one. Throws IoError.
void remove_folder(const fs::path& folder);

}  // namespace skein::checkpoint
