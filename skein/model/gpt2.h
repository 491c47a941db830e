// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/model/model.h"

namespace skein::model {

// GPT-2: pre-norm blocks with LayerNorm, learned positions and GELU; weights in Conv1D's transposed
// layout. Units: one per block; embeddings, final norm and head form one root unit when tied (the
// default), else two. Throws UserError in forward for rows longer than n_positions.
std::unique_ptr<Model> make_gpt2(const Recipe& recipe);

}  // namespace skein::model
