// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What reporters are given: a run's configuration, and the numbers of a record.

#include <string>
#include <utility>
#include <vector>

#include "skein/config/plain_values.h"

namespace skein::report {

using Hparams = std::vector<std::pair<std::string, config::PlainValue>>;
// One record's numbers under the names of trainer_log.jsonl: loss, eval_loss, …
using Numbers = std::vector<std::pair<std::string, double>>;

}  // namespace skein::report
