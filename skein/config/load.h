// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// From the words of a command to a run's configuration.
//
// Precedence: command line > YAML (a child file over those it extends) > DeepSpeed JSON >
// default. Anything unknown, doubled, mistyped, out of range or contradictory is a UserError that
// starts with file:line:column or "command line". The user's page is docs/configuration.md.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "skein/config/arguments.h"
#include "skein/config/run_config.h"
#include "skein/config/syntax/node.h"

namespace skein::config {

struct Resolved {
  RunConfig config;
  std::map<std::string, Origin> origins;  // by canonical key; absent: default
  std::vector<std::string> notes;         // to be shown: no effect, overridden, how it was read
  std::vector<std::string> details;       // to be shown where asked: each key of a DeepSpeed file

  Origin origin_of(const std::string& key) const;
};

Resolved load(const Arguments& arguments);
// parse_arguments() and load(): what `skein train` and `skein config` are given.
Resolved load(std::span<const std::string> words);
// A file's text alone, as if it lay at `path`.
Resolved load_text(const std::string& yaml, const std::string& path);

// The resolved configuration as YAML that load() reads back to the same run: all keys, canonical.
// `fresh` is left out, since it belongs to one start. With origins, each line says where its
// value came from.
std::string to_yaml(const Resolved& resolved, bool with_origins = false);

}  // namespace skein::config
