// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Text to Node: what does a YAML or JSON file say, and where?
//
// Duplicate keys are refused and merge keys (`<<`) applied here, since yaml-cpp does neither.
// Scalars stay text: their type is the field's, never a guess from their looks.

#include <string>
#include <vector>

#include "skein/config/syntax/node.h"
#include "skein/core/file.h"

namespace skein::config {

// Throws UserError with file:line:column for anything that is not one well-formed document.
Node read_yaml(const std::string& text, const std::string& file);
// The same for JSON (origins say kDeepSpeed: the only JSON there is).
Node read_json(const std::string& text, const std::string& file);

// The settings of a file and of the files it extends, furthest parent first.
std::vector<std::vector<Setting>> read_config_files(const fs::path& path);
// The same when the file's text is at hand; `path` is where it would lie.
std::vector<std::vector<Setting>> read_config_text(const std::string& text, const fs::path& path);

// A map as dotted settings. `training:` vanishes, `deepspeed:` stays whole, and top-level keys
// that start with `x-` are skipped: they hold anchors.
std::vector<Setting> flatten(const Node& map);

}  // namespace skein::config
