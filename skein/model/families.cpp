// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/families.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/model/decoder.h"
#include "skein/model/gpt2.h"
#include "skein/model/layers.h"
#include "skein/plan/families/decoder.h"

namespace skein::model {
namespace {

struct Family {
  std::string_view model_type;
  std::unique_ptr<Model> (*make)(const Recipe& recipe);
};

constexpr Family kFamilies[] = {
    {"gpt2", make_gpt2},
};

}  // namespace

std::unique_ptr<Model> make_model(std::string_view model_type, const Recipe& recipe) {
  if (dynamic_cast<const plan::Decoder*>(&recipe.architecture()) != nullptr) {
    return make_decoder(recipe);
  }
  for (const auto& family : kFamilies) {
    if (family.model_type == model_type) return family.make(recipe);
  }
  throw InternalError(fmt::format("model_type {} has no row in model/families.cpp", model_type));
}

}  // namespace skein::model
