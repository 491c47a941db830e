// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Slurm's short forms, as it writes them into the variables of a job.

#include <string>
#include <string_view>
#include <vector>

namespace skein::launch {

// `node[01-03,7],x`: node01 node02 node03 node7 x. Throws UserError, naming `origin`, for anything
// else, and for more than 65536 names.
std::vector<std::string> expand_hosts(std::string_view text, std::string_view origin);

// `4(x2),3`: 4 4 3, tasks by node. Throws as above.
std::vector<int> expand_counts(std::string_view text, std::string_view origin);

}  // namespace skein::launch
