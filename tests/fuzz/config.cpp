// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// What is accepted must come back from its own YAML: resumed runs read that file.
#include "skein/config/load.h"
#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {

void config(std::string_view bytes) {
  config::Resolved resolved;
  try {
    resolved = config::load_text(std::string(bytes), "run.yaml");
  } catch (const UserError&) {
    return;
  } catch (const IoError&) {
    return;  // a file that it extends
  }
  auto again = config::load_text(config::to_yaml(resolved), "again.yaml").config;
  again.checkpoint.fresh = resolved.config.checkpoint.fresh;
  require(again == resolved.config, "to_yaml() is read back to the same run");
}

}  // namespace skein::fuzz
