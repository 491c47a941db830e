// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/embedding_noise.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <string>

#include "skein/core/error.h"
#include "skein/ops/embedding_noise_kernel.h"
#include "skein/tensor/dtype.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

DType noise_type(at::ScalarType dtype) {
  const bool known =
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
  if (known) return tensor::dtype_of(dtype);
  throw UserError(
      std::string("neftune_noise_alpha supports float32, float64, bfloat16 and float16, not ") +
      c10::toString(dtype) + ": set dtype to one of these");
}

const int64_t* pointer(const at::Tensor& keys) {
  return keys.defined() ? keys.const_data_ptr<int64_t>() : nullptr;
}

struct AddNoise : Function<AddNoise> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const EmbeddingNoise& noise) {
    const auto input = x.contiguous();
    auto output = at::empty_like(input);
    if (x.is_meta() || x.numel() == 0) return output;
    const EmbeddingNoiseCall call{
        .place = {.input = input.const_data_ptr(),
                  .output = output.mutable_data_ptr(),
                  .documents = pointer(noise.documents),
                  .positions = pointer(noise.positions),
                  .batch = x.size(0),
                  .tokens = x.size(1),
                  .width = x.size(2),
                  .stream = noise.stream,
                  .type = noise_type(x.scalar_type())},
        .lengths = pointer(noise.lengths),
        .magnitude = noise.alpha / std::sqrt(static_cast<double>(x.size(2)))};
    if (x.is_cuda()) {
      embedding_noise_on_cuda(call);
    } else {
      embedding_noise_on_cpu(call);
    }
    return output;
  }

  static variable_list backward(AutogradContext*, const variable_list& incoming) {
    return {incoming[0], {}};
  }
};

}  // namespace

at::Tensor embedding_noise(const at::Tensor& x, const EmbeddingNoise& noise) {
  if (noise.alpha == 0) return x;
  SKEIN_CHECK(x.dim() == 3, "noise is added to (B, T, C)");
  const bool is_run = noise.positions.defined();
  SKEIN_CHECK(!is_run || x.size(0) == 1, "a run of documents is one row");
  auto keyed = noise;
  for (auto* keys : {&keyed.documents, &keyed.lengths, &keyed.positions}) {
    if (!keys->defined()) continue;
    SKEIN_CHECK(keys->dim() == 1 && keys->size(0) == x.size(is_run ? 1 : 0) &&
                    keys->scalar_type() == at::kLong && keys->device() == x.device(),
                "documents and lengths must be (B), of a run (T), int64 on x's device");
    *keys = keys->contiguous();
  }
  SKEIN_CHECK(keyed.documents.defined(), "noise is keyed by documents");
  return AddNoise::apply(x, keyed);
}

}  // namespace skein::ops
