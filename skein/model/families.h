// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which code makes the model that plan/families has read?

#include <memory>
#include <string_view>

#include "skein/model/model.h"

namespace skein::model {

// A plan::Decoder says all that its model is made of. A family with a description of its own has
// code of its own, and a row in families.cpp.
std::unique_ptr<Model> make_model(std::string_view model_type, const Recipe& recipe);

}  // namespace skein::model
