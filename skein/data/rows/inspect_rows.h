// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a person see of the rows that a run trains on?

#include <optional>
#include <string>

#include "skein/data/inspect.h"
#include "skein/data/rows/label_audit.h"
#include "skein/data/rows/run_rows.h"

namespace skein::data {

struct RowsDescription {
  std::string text;
  std::optional<std::string> refusal;  // why a run would not start
};
// The audits of both splits, how full the first epoch's packs are where `options` ask for packs,
// and where the rows were put.
RowsDescription describe_rows(const RunRows& rows, const RunRowsOptions& options,
                              const AuditOptions& tokens);

// The first rows of a split in the order in which they are used, as inspect() shows samples, each
// with its place, and both answers of a pair. Throws UserError when the split has none.
std::string inspect_rows(const RunRowsOptions& options, const InspectOptions& shown,
                         const Decode& decode);

}  // namespace skein::data
