// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// OUTPUT_DIR/.skein-run: which starts make up the run of this folder, and what has it written?
//
// Written by the first rank of the folder when nothing can refuse its start any more, before
// anything else is changed: the record is the decision, and what follows from it (folders that are
// renamed or removed) can be made up for by the next start. The format is docs/run_record.md.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"
#include "skein/core/run_mark.h"

namespace skein::checkpoint {

inline constexpr std::string_view kRecordName = kRunMark;

// One start of a run: `run` of the manifests that it writes.
struct Start {
  std::string token;
  // Of the checkpoint in this folder that it went on from; 0: it began elsewhere, or with the first
  // weights. None: an older program, which kept no record, made it.
  std::optional<int64_t> step;
  std::string asked;     // the folder that resume_from_checkpoint named, absolute; else empty
  std::string began_at;  // for people
};

struct RunRecord {
  std::vector<Start> starts;       // oldest first
  std::vector<std::string> files;  // besides checkpoints: what --fresh removes, below the folder

  // What --fresh is about to remove: starts of a run that is over, and its files.
  std::vector<std::string> removing_starts, removing_files;

  bool has_start(const std::string& token) const;
  bool is_being_removed(const std::string& token) const;
  // Has the run since begun again at an earlier step? Then it does not follow that checkpoint.
  bool has_left(const std::string& token, int64_t step) const;
  // The step at which the run began, in this folder, when a start last asked for `folder`. None: no
  // start has.
  std::optional<int64_t> step_when_asked(const std::string& folder) const;
  // Adds a name once.
  void add_file(const std::string& name);
};

// None where there is no record. Throws IoError when it cannot be read, or is not what was written.
std::optional<RunRecord> read_record(const fs::path& output);
void write_record(const fs::path& output, const RunRecord& record);

std::string record_text(const RunRecord& record);
RunRecord parse_record(std::string_view text, std::string_view file);

}  // namespace skein::checkpoint
