// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which of the user's variables reach every rank, on other machines too?
//
// Those that libraries of a rank read (NCCL_*, TORCH_*, …), and those in a `.deepspeed_env` file
// (NAME=VALUE lines) in the home or the working folder. Names that speak of secrets (KEY, TOKEN,
// SECRET, PASSWORD) are never forwarded nor printed.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "skein/core/log.h"

namespace skein::launch {

using Environment = std::map<std::string, std::string>;

// This process's variables.
Environment read_environment();

// Nothing for one that is missing or empty.
std::optional<std::string> find_variable(const Environment& environment, const std::string& name);

// What another machine's launcher is given, in the order of names. Reads .deepspeed_env; throws
// UserError, with file and line, for a line of it that makes no sense.
std::vector<std::pair<std::string, std::string>> forwarded(const Environment& environment);

// One line with those that are set, for the log at start; empty when none is.
std::string describe(const Environment& environment);

// From TORCH_DISTRIBUTED_DEBUG (OFF, INFO, DETAIL) and DEEPSPEED_LOG_LEVEL (debug … critical); the
// one that asks for more wins. Nothing when neither says anything. Throws UserError for a word that
// is none of these.
std::optional<LogLevel> asked_log_level(const Environment& environment);

}  // namespace skein::launch
