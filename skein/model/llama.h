// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/model/model.h"

namespace skein::model {

// Llama: pre-norm blocks with RMSNorm, rotary positions, grouped-query attention and SwiGLU.
// Units: one per block; embedding, final norm and head form one root unit when tied, else two.
std::unique_ptr<Model> make_llama(const plan::Architecture& architecture,
                                  const BuildOptions& options);

}  // namespace skein::model
