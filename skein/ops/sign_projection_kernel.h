// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The contract of the CUDA kernels that project rows by the signs of core/random.h, in raw
// pointers. Free of torch, C++17: nvcc reads it too.

#include <cstdint>

namespace skein::ops {

// sums (samples, columns) += rows (samples, elements) · S, where S holds the signs of a stream for
// the elements from `first_element` on and the columns [0, columns).
//
// A value is split into two bf16 terms, which err by 2^-18 of it at most; signs are exact, and are
// made where the tensor cores read them. Sums are fp32, in an order that follows from the shapes
// and the number of multiprocessors.
struct SignProjectionCall {
  const float* rows = nullptr;
  int64_t row_stride = 0;
  int64_t samples = 0, elements = 0, columns = 0;
  uint64_t stream = 0;
  int64_t first_element = 0;
  float* sums = nullptr;  // rows of `columns` elements
  void* terms = nullptr;  // scratch, as SignProjectionScratch says
  float* parts = nullptr;
};

// Needs multiplication of bf16 matrices: has_native_bfloat16() of device.h.
void add_sign_projection_on_cuda(const SignProjectionCall& call);

// How many elements of scratch a call needs on the current device; 16 bytes of alignment.
struct SignProjectionScratch {
  int64_t terms = 0;  // bf16
  int64_t parts = 0;  // fp32
};
SignProjectionScratch sign_projection_scratch(int64_t samples, int64_t elements, int64_t columns);

// Writes signs (elements, columns): +1 and -1.
struct FillSignsCall {
  float* signs = nullptr;
  uint64_t stream = 0;
  int64_t first_element = 0;
  int64_t elements = 0, columns = 0;
};
void fill_signs_on_cuda(const FillSignsCall& call);

}  // namespace skein::ops
