// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which parameters have a learning rate of their own?

#include "skein/tensor/parameter_table.h"

namespace skein::train {

// LoRA+, by PEFT's groups: what adds to the output (B, and vectors that train) learns `ratio` times
// as fast as A. Adapters of an embedding peak at 1e-6, where the others peak at `peak_rate`. A
// ratio of 0 changes nothing.
void set_rates(tensor::ParameterTable& table, double ratio, double peak_rate);

}  // namespace skein::train
