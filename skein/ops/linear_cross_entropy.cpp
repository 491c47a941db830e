// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear_cross_entropy.h"

#include <ATen/TensorOperators.h>
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
#include "skein/tensor/batch.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// N rows, C channels, V vocabulary; n rows of one chunk

at::ScalarType row_dtype(const at::Tensor& hidden) {
  return hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct Chunk {
  int64_t begin = 0;     // first row
  at::Tensor hidden;     // (n, C)
  at::Tensor valid;      // (n) 1 or 0
  at::Tensor index;      // (n, 1) targets, 0 where ignored
  at::Tensor log_probs;  // (n, V)
  at::Tensor log_prob;   // (n) of the targets, 0 where ignored
};

Chunk make_chunk(int64_t begin, const at::Tensor& hidden, const at::Tensor& weight,
                 const at::Tensor& targets) {
  Chunk chunk;
  const auto valid = targets.ne(tensor::kIgnore);
  chunk.begin = begin;
  chunk.hidden = hidden;
  chunk.valid = valid.to(row_dtype(hidden));
  chunk.index = (targets * valid).unsqueeze(1);
  const auto logits = at::mm(hidden, weight.t());
  chunk.log_probs = at::log_softmax(logits, 1, row_dtype(hidden));
  chunk.log_prob = chunk.log_probs.gather(1, chunk.index).squeeze(1).mul_(chunk.valid);
  return chunk;
}

int64_t rows_per_chunk(const at::Tensor& hidden, const at::Tensor& weight, int64_t logits_bytes) {
  const auto row_bytes = weight.size(0) * static_cast<int64_t>(c10::elementSize(row_dtype(hidden)));
  return std::max<int64_t>(1, logits_bytes / row_bytes);
}

template <typename Visit>
void for_each_chunk(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                    int64_t logits_bytes, Visit visit) {
  const int64_t step = rows_per_chunk(hidden, weight, logits_bytes);
  for (int64_t begin = 0; begin < hidden.size(0); begin += step) {
    const int64_t rows = std::min(step, hidden.size(0) - begin);
    auto chunk =
        make_chunk(begin, hidden.narrow(0, begin, rows), weight, targets.narrow(0, begin, rows));
    visit(chunk);
  }
}

// d(sum of scale · log_prob) / d logits, in the memory of log_probs.
at::Tensor logits_gradient(Chunk& chunk, const at::Tensor& scale) {  // (n) -> (n, V)
  auto gradient = chunk.log_probs.exp_().neg_();
  gradient.scatter_add_(1, chunk.index, at::ones(chunk.index.sizes(), gradient.options()));
  return gradient.mul_((scale * chunk.valid).unsqueeze(1));
}

// Collects d_hidden and d_weight over the chunks.
class Gradients {
 public:
  Gradients(const at::Tensor& hidden, const at::Tensor& weight, bool hidden_wanted,
            bool weight_wanted)
      : weight_(weight) {
    if (hidden_wanted) d_hidden_ = at::empty(hidden.sizes(), hidden.options());
    // Sums over chunks of 16-bit weights are formed in fp32, at twice the bytes of d_weight; each
    // chunk's product is rounded to 16 bits once before it is added.
    const auto options = weight.options().dtype(row_dtype(weight));
    if (weight_wanted) d_weight_ = at::zeros(weight.sizes(), options);
  }

  // Uses up the chunk.
  void add(Chunk& chunk, const at::Tensor& scale) {
    if (!d_hidden_.defined() && !d_weight_.defined()) return;
    const auto d_logits = logits_gradient(chunk, scale).to(weight_.scalar_type());
    if (d_hidden_.defined()) {
      auto rows = d_hidden_.narrow(0, chunk.begin, chunk.hidden.size(0));
      at::mm_out(rows, d_logits, weight_);
    }
    if (!d_weight_.defined()) return;
    if (d_weight_.scalar_type() == weight_.scalar_type()) {
      d_weight_.addmm_(d_logits.t(), chunk.hidden);
    } else {
      d_weight_.add_(at::mm(d_logits.t(), chunk.hidden));
    }
  }

  const at::Tensor& d_hidden() const { return d_hidden_; }
  const at::Tensor& d_weight() const { return d_weight_; }

 private:
  const at::Tensor& weight_;
  at::Tensor d_hidden_, d_weight_;
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
    Gradients gradients(hidden, weight, rows.gradients && hidden.requires_grad(),
                        rows.gradients && weight.requires_grad());
    auto loss = at::zeros({}, hidden.options().dtype(at::kDouble));
    for_each_chunk(hidden, weight, rows.targets, rows.logits_bytes, [&](Chunk& chunk) {
      const auto scale = rows.weights.narrow(0, chunk.begin, chunk.hidden.size(0)).neg();
      loss += (chunk.log_prob * scale).sum(at::kDouble);
      gradients.add(chunk, scale);
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
    for_each_chunk(hidden, weight, targets, logits_bytes, [&](Chunk& chunk) {
      log_probs.narrow(0, chunk.begin, chunk.hidden.size(0)).copy_(chunk.log_prob);
    });
    context->save_for_backward({hidden, weight, targets});
    context->saved_data["logits_bytes"] = logits_bytes;
    return log_probs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto &hidden = saved[0], &weight = saved[1], &targets = saved[2];
    const int64_t logits_bytes = context->saved_data["logits_bytes"].toInt();
    Gradients gradients(hidden, weight, context->needs_input_grad(0), context->needs_input_grad(1));
    for_each_chunk(hidden, weight, targets, logits_bytes, [&](Chunk& chunk) {
      gradients.add(chunk, incoming[0].narrow(0, chunk.begin, chunk.hidden.size(0)));
    });
    auto d_weight = gradients.d_weight();
    if (d_weight.defined()) d_weight = d_weight.to(weight.scalar_type());
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
