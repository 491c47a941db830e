// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where a linear layer can be listened to.
//
// The gradient of a layer's parameters for one sample follows from what the layer was given and the
// gradient of what it gave, both over that sample's tokens. A layer passes its output through its
// tap; while somebody listens (Units::listen), a pass with gradients leaves both there, and
// backward hands them over, block by block. In training nobody does, and a tap is a comparison.

#include <ATen/core/Tensor.h>

#include <utility>

namespace skein::tensor {

class Tap {
 public:
  // Returns what is to be used as the layer's output from here on.
  at::Tensor pass(const at::Tensor& input, const at::Tensor& output);

  void set_listening(bool listening) { listening_ = listening; }

  struct Use {
    at::Tensor input, output;  // of the inner graph; undefined: the layer was not used
  };
  // The last use, which it then forgets.
  Use take() { return std::exchange(use_, {}); }

 private:
  bool listening_ = false;
  Use use_;
};

// What backward hands over.
struct Tapped {
  const Tap* tap = nullptr;
  at::Tensor input;            // (…, in)
  at::Tensor output_gradient;  // (…, out)
};

}  // namespace skein::tensor
