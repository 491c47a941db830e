// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The hosts of a run, in DeepSpeed's words: node i runs on the i-th of them.
//
// A line is `host slots=N`; `#` begins a comment. --include and --exclude choose among them:
// `host:0,2@host2`, where a host without slots means all of its slots. Names reach ssh's command
// line, so only letters, digits, `.`, `_`, `-` and one `user@` are allowed, and no leading `-`.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "skein/launch/placement/launch_plan.h"

namespace skein::launch {

struct HostChoice {
  std::string include;
  std::string exclude;  // not together with include
  int most = 0;         // --num-nodes: the first so many; 0: all
};

// These throw UserError with file and line, or with the flag and the known names.
std::vector<Host> read_hostfile(const std::filesystem::path& path);
std::vector<Host> parse_hostfile(std::string_view text, const std::string& origin);
std::vector<Host> choose_hosts(std::vector<Host> hosts, const HostChoice& choice);

// `where` begins the message: "hosts:3", "--include".
void check_host_name(std::string_view name, const std::string& where);

}  // namespace skein::launch
