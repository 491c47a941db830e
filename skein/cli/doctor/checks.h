// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What `skein doctor` looks at, without LibTorch.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "skein/launch/placement/hardware.h"
#include "skein/launch/placement/variables.h"

namespace skein::cli {

enum class Health { kOk, kWarning, kProblem };

// A problem stops runs; a warning stops some, or makes them slow.
struct Finding {
  std::string name;
  Health health = Health::kOk;
  std::string found;
  std::string advice;  // what to do; empty where there is nothing
};

// Never throws: what cannot be found out is a finding too. `facts` is what skein-worker tells
// (commands.h), null if it cannot be started.
std::vector<Finding> check_gpus(const launch::Hardware& hardware, bool cuda_build,
                                const nlohmann::ordered_json& facts);
std::vector<Finding> check_network(const launch::Environment& environment);
std::vector<Finding> check_limits(const launch::Hardware& hardware,
                                  const launch::Environment& environment,
                                  const nlohmann::ordered_json& facts);
// How fast the disk of `folder` is written and read: at most 256 MiB, for about a second, in a file
// without a name. The figures go to `measured`; it stays null when there are none.
Finding check_disk_rate(const std::filesystem::path& folder, nlohmann::ordered_json& measured);
// How `skein train` would be started here.
Finding check_launch(const launch::Hardware& hardware, const launch::Environment& environment,
                     bool cuda_build);

}  // namespace skein::cli
