// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Runs a case on ranks that are processes, started as users' ranks are.
//
// The test program plays three roles: the tests, a launcher (`--launch RANKS CASE FOLDER`), and one
// rank (`--rank CASE FOLDER`). Its main() calls play_role() first. A case is a text: a
// TrainingCase's, or one that skip_text() or load_text() makes.

#include <optional>
#include <string>
#include <vector>

#include "tests/ranks/training_case.h"

namespace skein::ranks {

// The exit code of the launcher's or a rank's role; none when the tests are to be run.
std::optional<int> play_role(int argc, char** argv);

// One text per rank, as run_case(), run_skip_text() or run_load_text() gives it; none when the
// launch failed.
std::vector<std::string> run_on_processes(const std::string& text, int ranks);
std::vector<std::string> run_on_processes(const TrainingCase& test_case);

}  // namespace skein::ranks
