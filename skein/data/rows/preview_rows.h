// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are a split's rows like? Their files are looked at, nothing is prepared or written.

#include <cstdint>

#include "skein/data/rows/run_rows.h"
#include "skein/data/source_files.h"

namespace skein::data {

struct RowPreview {
  uint64_t bytes = 0;
  int64_t rows = 0;     // that can be trained on
  int64_t tokens = 0;   // of these, cut to cutoff_len
  int64_t packs = 0;    // of cutoff_len tokens that these fill, about
  int64_t longest = 0;  // tokens of a row, cut too
  bool exact = false;   // all but the packs; else extrapolated from the beginnings of the files
};

// Whether files of rows (.jsonl, .json) hold more than texts: one of their first rows is a
// conversation, a prompt or an instruction, as `stage: sft` reads it. Looks as far as
// preview_rows() does; what cannot be read says nothing.
bool hold_conversations(const Sources& sources);

// Encodes the first 256 KiB of the first 16 files. Throws what prepare_rows() and open_run_rows()
// throw for what is seen there. Requires sources.
RowPreview preview_rows(const Sources& sources, const RunRowsOptions& options);

}  // namespace skein::data
