// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/batch.h"

namespace skein::tensor {

Batch to_device(const Batch& batch, at::Device device) {
  return {batch.tokens.to(device), batch.targets.to(device), batch.documents.to(device),
          batch.num_targets};
}

}  // namespace skein::tensor
