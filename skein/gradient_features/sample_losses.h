// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a model says of each document of a run, without dropout.

#include <ATen/core/Tensor.h>

#include "skein/model/model.h"
#include "skein/tensor/host_batch.h"
#include "skein/tensor/units.h"

namespace skein::gradient_features {

// The sum over the documents of each one's mean loss over its targets, to be differentiated:
// float64 scalar. A document without a target adds nothing.
at::Tensor mean_loss_sum(const model::Model& model, const tensor::HostBatch& run,
                         tensor::Units& units);

// Each document's mean loss -> (documents, 1), fp32, on the CPU.
at::Tensor mean_losses(const model::Model& model, const tensor::HostBatch& run,
                       tensor::Units& units);
// Each document's last hidden state, after the final norm -> (documents, C), fp32, on the CPU.
at::Tensor last_states(const model::Model& model, const tensor::HostBatch& run,
                       tensor::Units& units);

}  // namespace skein::gradient_features
