// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// The reference: plain loops, rows dealt to threads (a row's noise does not depend on its thread).
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>

#include "skein/core/parallel.h"
#include "skein/ops/embedding_noise_kernel.h"

namespace skein::ops {
namespace {

template <typename T>
void add_to_row(const EmbeddingNoiseCall& call, int64_t row) {
  using Wide = at::opmath_type<T>;
  const auto& place = call.place;
  const auto [document, head, position] = dropout_row(place, row);
  const auto magnitude =
      static_cast<Wide>(call.magnitude) / std::sqrt(static_cast<Wide>(document_length(call, row)));
  const T* input = static_cast<const T*>(place.input) + row * place.width;
  T* output = static_cast<T*>(place.output) + row * place.width;
  for (int64_t begin = 0; begin < place.width; begin += kDropoutWords) {
    const auto words = dropout_words(place.stream, document, head, position, begin / kDropoutWords);
    const int64_t end = std::min(begin + kDropoutWords, place.width);
    for (int64_t i = begin; i < end; ++i) {
      const auto noise = magnitude * static_cast<Wide>(to_signed_unit(words.word[i - begin]));
      output[i] = static_cast<T>(static_cast<Wide>(input[i]) + noise);
    }
  }
}

template <typename T>
void add(const EmbeddingNoiseCall& call) {
  constexpr int64_t kElementsPerTask = 1 << 17;  // about a millisecond
  const int64_t rows = call.place.batch * call.place.tokens;
  const int64_t step = std::max<int64_t>(1, kElementsPerTask / call.place.width);
  for_each_index((rows + step - 1) / step, at::get_num_threads(), [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * step);
    for (int64_t row = task * step; row < end; ++row) add_to_row<T>(call, row);
  });
}

}  // namespace

void embedding_noise_on_cpu(const EmbeddingNoiseCall& call) {
  switch (call.place.type) {
    case DType::kF32:
      return add<float>(call);
    case DType::kF64:
      return add<double>(call);
    case DType::kBF16:
      return add<c10::BFloat16>(call);
    case DType::kF16:
      return add<c10::Half>(call);
    default:
      return;  // embedding_noise.cpp refuses it
  }
}

}  // namespace skein::ops
