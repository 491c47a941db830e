// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The record of a run. What it lists is removed by --fresh, so that no name may lead out of the
// folder.
#include "skein/checkpoint/files/run_record.h"

#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void check_names(const std::vector<std::string>& names) {
  for (const auto& name : names) {
    const fs::path path(name);
    require(!path.empty() && path.is_relative(), "a name is relative");
    for (const auto& part : path) {
      require(part != ".." && part != "." && !part.empty(), "a name stays below the folder");
    }
    require(name.find('\0') == std::string::npos, "a name is whole");
  }
}

}  // namespace

void run_record(std::string_view bytes) try {
  const auto record = checkpoint::parse_record(bytes, ".skein-run");
  check_names(record.files);
  check_names(record.removing_files);
  for (const auto& start : record.starts) {
    require(start.step.value_or(0) >= 0, "a step is not negative");
    require(record.has_start(start.token), "a start is found");
  }
  const auto text = checkpoint::record_text(record);
  require(checkpoint::record_text(checkpoint::parse_record(text, "")) == text,
          "what is written is read again");
} catch (const IoError&) {
}

}  // namespace skein::fuzz
