// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What reporters are given: a run's configuration, the numbers of a record, and whom to tell what
// they write.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "skein/config/plain_values.h"
#include "skein/core/file.h"

namespace skein::report {

using Hparams = std::vector<std::pair<std::string, config::PlainValue>>;
// One record's numbers under the names of trainer_log.jsonl: loss, eval_loss, …
using Numbers = std::vector<std::pair<std::string, double>>;
// Told the files and folders that a reporter is about to make, before any of them is there.
using Announce = std::function<void(const std::vector<fs::path>&)>;

}  // namespace skein::report
