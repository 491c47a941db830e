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
  std::string asked;     // the folder that resume_from_checkpoint named, asked_name(); else empty
  std::string began_at;  // for people
};

// What the run does without since a first update ran out of memory, as words that change the
// configuration (plan/ladder.h), and what that holds for: ranks, and rows of each per update.
struct GivenUp {
  std::string words;
  int64_t ranks = 0;
  int64_t rows = 0;
};

struct RunRecord {
  std::vector<Start> starts;  // oldest first
  std::optional<GivenUp> given_up;
  std::vector<std::string> files;  // besides checkpoints: what --fresh removes, below the folder

  // What --fresh is about to remove: starts of a run that is over, and its files.
  std::vector<std::string> removing_starts, removing_files;
  bool is_removing() const { return !removing_starts.empty() || !removing_files.empty(); }

  // Where every node has a folder of its own, a start's tokens differ behind their dash alone: what
  // one node has saved is the run's in another's folder too.
  bool has_start(const std::string& token) const;
  bool is_being_removed(const std::string& token) const;
  // Has the run since begun again at an earlier step? Then it does not follow that checkpoint.
  bool has_left(const std::string& token, int64_t step) const;
  // The step of the first start that asked for a folder, asked_name(): those after it have gone on.
  // None: no start did, or later ones have left what came of it, going further back or beginning
  // with something else.
  std::optional<int64_t> began_with(const std::string& asked) const;
  // Adds a name once.
  void add_file(const std::string& name);
};

// One name for all spellings of a folder, also where it is gone. A link at its end stays: what
// `latest` was when it was asked for is not what it is now.
std::string asked_name(const fs::path& folder);

// None where there is no record. Throws IoError when it cannot be read, or is not what was written.
std::optional<RunRecord> read_record(const fs::path& output);
void write_record(const fs::path& output, const RunRecord& record);

std::string record_text(const RunRecord& record);
RunRecord parse_record(std::string_view text, std::string_view file);

}  // namespace skein::checkpoint
