// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What NEFTune's noise on a batch's embeddings is keyed by.

#include "skein/ops/embedding_noise.h"
#include "skein/tensor/batch.h"

namespace skein::model {

// Of `alpha` 0 or outside of training: none.
ops::EmbeddingNoise noise_of(double alpha, const tensor::Batch& batch, const tensor::StepKey& key);

}  // namespace skein::model
