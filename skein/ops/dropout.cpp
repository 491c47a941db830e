// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/dropout.h"

#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>

#include "skein/core/error.h"
#include "skein/ops/dropout_kernel.h"
#include "skein/tensor/dtype.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Keeps these streams apart from those of other draws under the same seed ("dropout" in ASCII).
constexpr uint64_t kStreamTag = 0x64726F706F7574;

DType dropout_type(at::ScalarType dtype) {
  const bool known =
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
  if (known) return tensor::dtype_of(dtype);
  throw UserError(std::string("dropout supports float32, float64, bfloat16 and float16, not ") +
                  c10::toString(dtype) + ": set dtype to one of these");
}

// x (B, H, T, W)
at::Tensor run(const at::Tensor& x, const Dropout& options) {
  const auto input = x.contiguous();
  auto output = at::empty_like(input);
  if (x.is_meta() || x.numel() == 0) return output;
  const DropoutCall call{
      .input = input.const_data_ptr(),
      .output = output.mutable_data_ptr(),
      .documents = options.documents.const_data_ptr<int64_t>(),
      .positions =
          options.positions.defined() ? options.positions.const_data_ptr<int64_t>() : nullptr,
      .batch = x.size(0),
      .heads = x.size(1),
      .tokens = x.size(2),
      .width = x.size(3),
      .stream = options.stream,
      .threshold = static_cast<uint32_t>(std::min(options.probability * 0x1p32, 0x1p32 - 1)),
      .scale = 1 / (1 - options.probability),
      .type = dropout_type(x.scalar_type())};
  if (x.is_cuda()) {
    dropout_on_cuda(call);
  } else {
    dropout_on_cpu(call);
  }
  return output;
}

struct KeyedDropout : Function<KeyedDropout> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Dropout& options) {
    context->save_for_backward({options.documents, options.positions});
    context->saved_data["probability"] = options.probability;
    context->saved_data["stream"] = static_cast<int64_t>(options.stream);
    return run(x, options);
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const Dropout options{.probability = context->saved_data["probability"].toDouble(),
                          .stream = static_cast<uint64_t>(context->saved_data["stream"].toInt()),
                          .documents = saved[0],
                          .positions = saved[1]};
    return {run(incoming[0], options), {}};
  }
};

// Checked, and in the layout that kernels read. x (B, H, T, W)
Dropout keyed(const at::Tensor& x, const Dropout& options) {
  const bool is_run = options.positions.defined();
  const auto check = [&](const at::Tensor& keys, int64_t dimension) {
    SKEIN_CHECK(keys.sizes() == x.sizes().slice(static_cast<size_t>(dimension), 1) &&
                    keys.scalar_type() == at::kLong && keys.device() == x.device(),
                "documents must be (B), those and the positions of a run (T), int64 on x's device");
  };
  check(options.documents, is_run ? 2 : 0);
  if (is_run) {
    SKEIN_CHECK(x.size(0) == 1, "a run of documents is one row");
    check(options.positions, 2);
  }
  auto ready = options;
  ready.documents = options.documents.contiguous();
  if (is_run) ready.positions = options.positions.contiguous();
  return ready;
}

void check_probability(const Dropout& options) {
  SKEIN_CHECK(options.probability > 0 && options.probability < 1, "dropout must be in [0, 1)");
}

}  // namespace

uint64_t dropout_stream(const tensor::StepKey& key, int64_t layer, DropoutSite site) {
  auto stream = random::mix(key.seed, kStreamTag);
  stream = random::mix(stream, static_cast<uint64_t>(key.step));
  stream = random::mix(stream, static_cast<uint64_t>(layer));
  return random::mix(stream, static_cast<uint64_t>(site));
}

at::Tensor dropout(const at::Tensor& x, const Dropout& options) {
  if (options.probability == 0) return x;
  SKEIN_CHECK(x.dim() == 3, "dropout takes (B, T, C)");
  check_probability(options);
  const auto rows = x.unsqueeze(1);
  return KeyedDropout::apply(rows, keyed(rows, options)).squeeze(1);
}

at::Tensor drop(const at::Tensor& x, const Dropout& options) {
  if (options.probability == 0) return x;
  SKEIN_CHECK(x.dim() == 3, "dropout takes (B, T, C)");
  check_probability(options);
  const auto rows = x.detach().unsqueeze(1);
  return run(rows, keyed(rows, options)).squeeze(1);
}

at::Tensor attention_dropout(const at::Tensor& probabilities, const Dropout& options) {
  if (options.probability == 0) return probabilities;
  SKEIN_CHECK(probabilities.dim() == 4 && probabilities.size(3) <= int64_t{1} << kDropoutHeadShift,
              "attention_dropout takes (B, H, T, S), S at most 2^20");
  check_probability(options);
  return KeyedDropout::apply(probabilities, keyed(probabilities, options));
}

}  // namespace skein::ops
