// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The configuration as a JSON Schema (draft 2020-12), for editors that complete and check YAML.
//
// Made from the field lists. Other spellings are marked deprecated and name the canonical key. The
// schema is a little wider than load(): it knows types, words and ranges of single keys, but not
// duplicates, contradictions or origins.

#include <string>

namespace skein::config {

std::string json_schema();

}  // namespace skein::config
