// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The resolved configuration as reporters take it: flat names, plain values.

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace skein::report {

using HparamValue = std::variant<bool, double, std::string>;
using Hparams = std::vector<std::pair<std::string, HparamValue>>;
// One record's numbers under the names of trainer_log.jsonl: loss, eval_loss, …
using Numbers = std::vector<std::pair<std::string, double>>;

}  // namespace skein::report
