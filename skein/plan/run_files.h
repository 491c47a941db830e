// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which files of an output folder would a run replace, and may it?

#include <optional>
#include <string>
#include <vector>

#include "skein/checkpoint/files/catalog.h"
#include "skein/core/file.h"

namespace skein::plan {

// The name under which the run's configuration is saved: a user's own config.yaml is never
// replaced. Throws UserError when a user has files under both names.
std::string config_name(const fs::path& output);

// Is the folder a run's? Older programs kept no record. A config.yaml says nothing: it may be the
// recipe of this start.
bool is_run_folder(const std::optional<checkpoint::RunRecord>& record,
                   const std::vector<checkpoint::SurveyedCheckpoint>& survey);

// Throws UserError when the folder is no run's and holds files that a run would replace.
void check_foreign_files(const fs::path& output);

}  // namespace skein::plan
