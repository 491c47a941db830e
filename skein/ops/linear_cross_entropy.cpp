// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/ops/cross_entropy_kernel.h"
#include "skein/ops/fused.h"
#include "skein/tensor/batch.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// N rows, C channels, V vocabulary; n rows of one chunk

constexpr int64_t kCudaChunkFactor = 16;

at::ScalarType row_dtype(const at::Tensor& hidden) {
  return hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// What one chunk of rows gives.
struct Chunk {
  int64_t begin = 0;    // first row
  at::Tensor hidden;    // (n, C)
  at::Tensor log_prob;  // (n) of the targets, 0 where ignored
  at::Tensor d_logits;  // (n, V) gradient of the sum of scale · log_prob, where asked for
};

// The plain formula: log_prob (n), and the gradient in the memory of the log-probabilities.
void finish_plain(Chunk& chunk, const at::Tensor& logits, const at::Tensor& targets,
                  const at::Tensor& scale) {
  const auto valid = targets.ne(tensor::kIgnore);
  const auto index = (targets * valid).unsqueeze(1);
  auto log_probs = at::log_softmax(logits, 1, row_dtype(logits));
  chunk.log_prob = log_probs.gather(1, index).squeeze(1).mul_(valid);
  if (!scale.defined()) return;
  auto gradient = log_probs.exp_().neg_();
  gradient.scatter_add_(1, index, at::ones(index.sizes(), gradient.options()));
  chunk.d_logits = gradient.mul_((scale * valid).unsqueeze(1)).to(logits.scalar_type());
}

// One kernel; the gradient takes the logits' place.
void finish_fused(Chunk& chunk, const at::Tensor& logits, const at::Tensor& targets,
                  const at::Tensor& scale) {
  chunk.log_prob = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  const auto rows = scale.defined() ? scale.to(at::kFloat).contiguous() : at::Tensor();
  cross_entropy_on_cuda({.logits = logits.mutable_data_ptr(),
                         .targets = targets.const_data_ptr<int64_t>(),
                         .scale = rows.defined() ? rows.const_data_ptr<float>() : nullptr,
                         .log_prob = chunk.log_prob.mutable_data_ptr<float>(),
                         .rows = logits.size(0),
                         .vocabulary = logits.size(1),
                         .type = element_type(logits)});
  if (scale.defined()) chunk.d_logits = logits;
}

// Chunks of fp32 logits of about this size. A GPU wants large products and has the memory.
int64_t rows_per_chunk(const at::Tensor& hidden, const at::Tensor& weight, int64_t logits_bytes) {
  const auto row_bytes = weight.size(0) * static_cast<int64_t>(c10::elementSize(row_dtype(hidden)));
  const int64_t bytes = hidden.is_cuda() ? logits_bytes * kCudaChunkFactor : logits_bytes;
  return std::max<int64_t>(1, bytes / row_bytes);
}

struct Head {
  at::Tensor hidden;   // (N, C)
  at::Tensor weight;   // (V, C)
  at::Tensor targets;  // (N)
  int64_t logits_bytes = 0;
};

// `scale` (N) is undefined when no gradient is wanted.
template <typename Visit>
void for_each_chunk(const Head& head, const at::Tensor& scale, Visit visit) {
  const int64_t step = rows_per_chunk(head.hidden, head.weight, head.logits_bytes);
  const bool fused = head.hidden.is_cuda() && head.hidden.scalar_type() != at::kDouble;
  for (int64_t begin = 0; begin < head.hidden.size(0); begin += step) {
    const int64_t rows = std::min(step, head.hidden.size(0) - begin);
    Chunk chunk{.begin = begin, .hidden = head.hidden.narrow(0, begin, rows)};
    const auto logits = at::mm(chunk.hidden, head.weight.t());
    const auto targets = head.targets.narrow(0, begin, rows);
    const auto part = scale.defined() ? scale.narrow(0, begin, rows) : at::Tensor();
    if (fused) {
      finish_fused(chunk, logits, targets, part);
    } else {
      finish_plain(chunk, logits, targets, part);
    }
    visit(chunk);
  }
}

// Collects d_hidden and d_weight over the chunks.
class Gradients {
 public:
  Gradients(const Head& head, bool hidden_wanted, bool weight_wanted) : weight_(head.weight) {
    if (hidden_wanted) d_hidden_ = at::empty(head.hidden.sizes(), head.hidden.options());
    // Sums over chunks of 16-bit weights are formed in fp32, at twice the bytes of d_weight.
    const auto options = weight_.options().dtype(row_dtype(weight_));
    if (weight_wanted) d_weight_ = at::zeros(weight_.sizes(), options);
  }

  void add(const Chunk& chunk) {
    if (d_hidden_.defined()) {
      auto rows = d_hidden_.narrow(0, chunk.begin, chunk.hidden.size(0));
      at::mm_out(rows, chunk.d_logits, weight_);
    }
    if (!d_weight_.defined()) return;
    if (d_weight_.scalar_type() == weight_.scalar_type()) {
      d_weight_.addmm_(chunk.d_logits.t(), chunk.hidden);
    } else if (weight_.is_cuda()) {
      at::addmm_out(d_weight_, d_weight_, chunk.d_logits.t(), chunk.hidden, at::kFloat);
    } else {
      d_weight_.add_(at::mm(chunk.d_logits.t(), chunk.hidden));  // rounded to 16 bits once
    }
  }

  const at::Tensor& d_hidden() const { return d_hidden_; }
  const at::Tensor& d_weight() const { return d_weight_; }

 private:
  at::Tensor weight_, d_hidden_, d_weight_;
};

at::Tensor scaled(const at::Tensor& gradient, const at::Tensor& factor, at::ScalarType dtype) {
  if (!gradient.defined()) return {};
  return at::mul(gradient, factor.to(gradient.scalar_type())).to(dtype);
}

// What is constant to autograd.
struct Rows {
  at::Tensor targets;  // (N)
  at::Tensor weights;  // (N)
  // Wanted at all? Inside Function::forward grad mode is always off, so it is read outside.
  bool gradients = true;
  int64_t logits_bytes = 0;
};

struct CrossEntropySum : Function<CrossEntropySum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const Rows& rows) {
    const Head head{hidden, weight, rows.targets, rows.logits_bytes};
    const bool hidden_wanted = rows.gradients && hidden.requires_grad();
    const bool weight_wanted = rows.gradients && weight.requires_grad();
    Gradients gradients(head, hidden_wanted, weight_wanted);
    const auto scale = rows.weights.neg();
    const auto wanted = hidden_wanted || weight_wanted ? scale : at::Tensor();
    auto loss = at::zeros({}, hidden.options().dtype(at::kDouble));
    for_each_chunk(head, wanted, [&](const Chunk& chunk) {
      const auto part = scale.narrow(0, chunk.begin, chunk.hidden.size(0));
      loss += (chunk.log_prob * part).sum(at::kDouble);
      if (wanted.defined()) gradients.add(chunk);
    });
    context->save_for_backward({gradients.d_hidden(), gradients.d_weight()});
    context->saved_data["dtype"] = static_cast<int64_t>(weight.scalar_type());
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto dtype = static_cast<at::ScalarType>(context->saved_data["dtype"].toInt());
    return {scaled(saved[0], incoming[0], dtype), scaled(saved[1], incoming[0], dtype), {}};
  }
};

struct LogProbs : Function<LogProbs> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& targets,
                            int64_t logits_bytes) {
    auto log_probs = at::empty(targets.sizes(), hidden.options().dtype(row_dtype(hidden)));
    for_each_chunk({hidden, weight, targets, logits_bytes}, {}, [&](const Chunk& chunk) {
      log_probs.narrow(0, chunk.begin, chunk.hidden.size(0)).copy_(chunk.log_prob);
    });
    context->save_for_backward({hidden, weight, targets});
    context->saved_data["logits_bytes"] = logits_bytes;
    return log_probs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const Head head{saved[0], saved[1], saved[2], context->saved_data["logits_bytes"].toInt()};
    Gradients gradients(head, context->needs_input_grad(0), context->needs_input_grad(1));
    for_each_chunk(head, incoming[0], [&](const Chunk& chunk) { gradients.add(chunk); });
    auto d_weight = gradients.d_weight();
    if (d_weight.defined()) d_weight = d_weight.to(head.weight.scalar_type());
    return {gradients.d_hidden(), d_weight, {}, {}};
  }
};

void check_shapes(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) {
  SKEIN_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1),
              "hidden must be (N, C) and weight (V, C)");
  SKEIN_CHECK(targets.dim() == 1 && targets.size(0) == hidden.size(0), "targets must be (N)");
}

}  // namespace

at::Tensor linear_cross_entropy_sum(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& targets, const at::Tensor& weights,
                                    const HeadOptions& options) {
  check_shapes(hidden, weight, targets);
  const auto wide = hidden.options().dtype(row_dtype(hidden)).requires_grad(false);
  const Rows rows{
      .targets = targets,
      .weights = weights.defined() ? weights.detach().to(wide) : at::ones(targets.sizes(), wide),
      .gradients = c10::GradMode::is_enabled(),
      .logits_bytes = options.logits_bytes};
  SKEIN_CHECK(rows.weights.sizes() == targets.sizes(), "weights must be (N)");
  return CrossEntropySum::apply(hidden, weight, rows);
}

at::Tensor linear_log_probs(const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& targets, const HeadOptions& options) {
  check_shapes(hidden, weight, targets);
  return LogProbs::apply(hidden, weight, targets, options.logits_bytes);
}

}  // namespace skein::ops
