// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which model families are there? One row per family.

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "skein/plan/families/architecture.h"
#include "skein/plan/families/config_reader.h"

namespace skein::plan {

struct Family {
  std::string_view model_type;  // as config.json writes it
  // Throws UserError for what the model's code does not compute exactly.
  std::unique_ptr<Architecture> (*read)(const ConfigReader& reader);
};

std::span<const Family> families();
// "llama, mistral, …".
std::string family_names();

}  // namespace skein::plan
