// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The reference: plain loops, rows dealt to threads (a row's mask does not depend on its thread).
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>

#include "skein/core/parallel.h"
#include "skein/ops/dropout_kernel.h"

namespace skein::ops {
namespace {

template <typename T>
void drop_row(const DropoutCall& call, int64_t row) {
  using Wide = at::opmath_type<T>;
  const auto scale = static_cast<Wide>(call.scale);
  const auto [document, head, position] = dropout_row(call, row);
  const T* input = static_cast<const T*>(call.input) + row * call.width;
  T* output = static_cast<T*>(call.output) + row * call.width;
  for (int64_t begin = 0; begin < call.width; begin += kDropoutWords) {
    const auto words = dropout_words(call.stream, document, head, position, begin / kDropoutWords);
    const int64_t end = std::min(begin + kDropoutWords, call.width);
    for (int64_t i = begin; i < end; ++i) {
      const bool keep = words.word[i - begin] >= call.threshold;
      output[i] = keep ? static_cast<T>(static_cast<Wide>(input[i]) * scale) : T(0);
    }
  }
}

template <typename T>
void drop(const DropoutCall& call) {
  constexpr int64_t kElementsPerTask = 1 << 17;  // about a millisecond
  const int64_t rows = call.batch * call.heads * call.tokens;
  const int64_t step = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, call.width));
  // Not at::parallel_for: it is a template, and on one thread where it is compiled without OpenMP.
  for_each_index((rows + step - 1) / step, at::get_num_threads(), [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * step);
    for (int64_t row = task * step; row < end; ++row) drop_row<T>(call, row);
  });
}

}  // namespace

void dropout_on_cpu(const DropoutCall& call) {
  switch (call.type) {
    case DType::kF32:
      return drop<float>(call);
    case DType::kF64:
      return drop<double>(call);
    case DType::kBF16:
      return drop<c10::BFloat16>(call);
    case DType::kF16:
      return drop<c10::Half>(call);
    default:
      return;  // dropout.cpp refuses it
  }
}

}  // namespace skein::ops
