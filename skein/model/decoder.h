// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/model/model.h"

namespace skein::model {

// Any model that a plan::Decoder describes: blocks of grouped-query attention with rotary positions
// and a gated MLP. Units: one per block; embedding, and final norm with head, form two root units,
// or one when tied.
std::unique_ptr<Model> make_decoder(const Recipe& recipe);

}  // namespace skein::model
