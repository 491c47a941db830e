// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// AdamW of one element: what the loops of ops/cpu/adamw.cpp and the kernels of
// ops/cuda/adamw.cu and adamw_small.cu share. Who compiles it forbids to contract a product and a
// sum into one rounding (CMakeLists.txt), so that all of them give the same bits. C++17: nvcc reads
// it too.

#include <cmath>

#include "skein/core/random.h"

namespace skein::ops {

// What an element is multiplied with. In double, and rounded there at last: `1 - beta` of a rounded
// beta would be wrong in the fifth digit.
struct AdamWConstants {
  double factor, gain1, gain2, beta2, inverse_root, epsilon, size, shrink;
};

// Of HostAdamW or AdamWCall; `step` is the number of the update, from 1.
template <typename Call>
SKEIN_HOST_DEVICE inline AdamWConstants adamw_constants(const Call& call, double factor,
                                                        double step) {
  // Of a moment's bias towards its beginning, zero.
  const double correction1 = 1 - std::pow(call.beta1, step),
               correction2 = 1 - std::pow(call.beta2, step);
  return {factor,
          1 - call.beta1,
          1 - call.beta2,
          call.beta2,
          1 / std::sqrt(correction2),
          call.epsilon,
          call.learning_rate / correction1,
          call.learning_rate * call.weight_decay};
}

template <typename W>
struct AdamWFormula {
  W factor, gain1, gain2, beta2, inverse_root, epsilon, size, shrink;

  SKEIN_HOST_DEVICE explicit AdamWFormula(const AdamWConstants& constants)
      : factor(static_cast<W>(constants.factor)),
        gain1(static_cast<W>(constants.gain1)),
        gain2(static_cast<W>(constants.gain2)),
        beta2(static_cast<W>(constants.beta2)),
        inverse_root(static_cast<W>(constants.inverse_root)),
        epsilon(static_cast<W>(constants.epsilon)),
        size(static_cast<W>(constants.size)),
        shrink(static_cast<W>(constants.shrink)) {}

  // The moments and the weight become the new ones. The weight takes decay and update in one sum,
  // and is rounded once.
  SKEIN_HOST_DEVICE void update(W gradient, W& m, W& v, W& weight) const {
    const W g = gradient * factor;
    m = m + gain1 * (g - m);
    v = beta2 * v + gain2 * g * g;
    const W direction = m / (std::sqrt(v) * inverse_root + epsilon);
    weight = weight - (shrink * weight + size * direction);
  }
};

}  // namespace skein::ops
