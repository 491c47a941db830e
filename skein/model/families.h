// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which code makes the models of a family? One row per family: the torch half of plan/families.h.

#include <memory>
#include <span>
#include <string_view>

#include "skein/model/model.h"

namespace skein::model {

struct Family {
  std::string_view model_type;
  // Of the architecture that plan's row of the same name has read.
  std::unique_ptr<Model> (*make)(const Recipe& recipe);
};

std::span<const Family> families();

}  // namespace skein::model
