// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/tap.h"

#include <ATen/core/grad_mode.h>

#include "skein/core/error.h"

namespace skein::tensor {

at::Tensor Tap::pass(const at::Tensor& input, const at::Tensor& output) {
  if (!listening_ || !at::GradMode::is_enabled()) return output;
  SKEIN_CHECK(!use_.output.defined(), "a layer that is listened to is used twice in one block");
  // The first block that is reached has nothing before it that asks for a gradient.
  use_ = {input.detach(),
          output.requires_grad() ? output : output.detach().set_requires_grad(true)};
  return use_.output;
}

}  // namespace skein::tensor
