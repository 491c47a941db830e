// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What are a split's rows like? Their files are looked at, nothing is prepared or written.

#include <cstdint>
#include <vector>

#include "skein/data/rows/label_audit.h"
#include "skein/data/rows/run_rows.h"
#include "skein/data/source_files.h"

namespace skein::data {

struct RowPreview {
  uint64_t bytes = 0;
  int64_t rows = 0;    // or pairs, that can be trained on
  int64_t tokens = 0;  // of these, cut to cutoff_len
  int64_t packs = 0;   // of pack_tokens() that these fill, about
  bool exact = false;  // all but the packs; else extrapolated from the beginnings of the files
  std::vector<int64_t> lengths;  // of those that were seen: tokens, cut too; of pairs both answers
  int64_t longest = 0;           // of those that were seen: a row, or an answer with its prompt
};

// Whether files of rows (.jsonl, .json) hold more than texts: one of their first rows is a
// conversation, a prompt or an instruction, as `stage: sft` reads it, or a preference. Looks as far
// as preview_rows() does; what cannot be read says nothing.
bool hold_conversations(const Sources& sources);

// Encodes the first 256 KiB of the first 16 files. Throws what prepare_rows(), RowsSource and
// require_labels() throw for what is seen there; what they throw for all rows together, where all
// were seen. Requires sources.
RowPreview preview_rows(const Sources& sources, Split split, const RunRowsOptions& options,
                        const AuditOptions& tokens);

}  // namespace skein::data
