// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Samples that are prompts: what the model is asked, and what is known of the answer.

#include <cstdint>
#include <string>

#include "skein/data/rows/row_source.h"

namespace skein::data {

// A sample is a prompt, with what the template puts before an answer. It has no targets. Of one
// that is longer than cutoff_len (max_prompt_length) and stays, the end is there.
class PromptSource final : public RowsSource {
 public:
  // Throws what RowsSource does.
  PromptSource(PreparedRows rows, const RowLimits& limits)
      : RowsSource(std::move(rows), limits, RowKind::kPrompts) {}

  // The whole row as it stands in its file, one JSON object: rewards may want any of its columns.
  std::string row_json(int64_t sample) const {
    return std::string(prepared().rows.json(row_of(sample)));
  }
};

}  // namespace skein::data
