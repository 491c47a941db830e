// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"
#include "skein/ops/cross_entropy_kernel.h"
#include "skein/ops/fused.h"
#include "skein/tensor/batch.h"

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// N rows, C channels, V vocabulary, P rows of the weight (V and padding); n rows of one chunk

at::ScalarType row_dtype(const at::Tensor& hidden) {
  return hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct Head {
  at::Tensor hidden;   // (N, C)
  at::Tensor weight;   // (P, C)
  at::Tensor targets;  // (N)
  HeadOptions options;

  int64_t vocabulary() const {
    return options.vocabulary > 0 ? options.vocabulary : weight.size(0);
  }
};

// What one chunk of rows gives.
struct Chunk {
  int64_t begin = 0;    // first row
  at::Tensor hidden;    // (n, C)
  at::Tensor log_prob;  // (n) of the (smoothed) targets, 0 where ignored
  at::Tensor d_logits;  // (n, P) gradient of log_prob, where asked for; 0 in padding
};

enum class Want { kValues, kGradients };

// What a target is: 1 - share of its own token, and the share over all.
struct Smoothing {
  int64_t vocabulary = 0;
  double share = 0;
  double everywhere() const { return share / static_cast<double>(vocabulary); }
};

// The plain formula; the gradient takes the memory of the log-probabilities.
void finish_plain(Chunk& chunk, const at::Tensor& padded_logits, const at::Tensor& targets,
                  const Smoothing& smoothing, Want want) {
  const auto vocabulary = smoothing.vocabulary;
  const auto logits = padded_logits.narrow(1, 0, vocabulary);
  const auto valid = targets.ne(tensor::kIgnore);
  const auto index = (targets * valid).unsqueeze(1);
  auto log_probs = at::log_softmax(logits, 1, row_dtype(logits));
  chunk.log_prob = log_probs.gather(1, index).squeeze(1);
  if (smoothing.share > 0) {
    chunk.log_prob.mul_(1 - smoothing.share).add_(log_probs.mean(1), smoothing.share);
  }
  chunk.log_prob.mul_(valid);
  if (want == Want::kValues) return;
  auto gradient = log_probs.exp_().neg_();
  if (smoothing.share > 0) gradient.add_(smoothing.everywhere());
  gradient.scatter_add_(1, index, at::full(index.sizes(), 1 - smoothing.share, gradient.options()));
  gradient.mul_(valid.unsqueeze(1));
  chunk.d_logits = at::constant_pad_nd(gradient.to(logits.scalar_type()),
                                       {0, padded_logits.size(1) - vocabulary});
}

// One kernel; the gradient takes the logits' place.
void finish_fused(Chunk& chunk, const at::Tensor& logits, const at::Tensor& targets,
                  const Smoothing& smoothing, Want want) {
  chunk.log_prob = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  cross_entropy_on_cuda({.logits = logits.mutable_data_ptr(),
                         .targets = targets.const_data_ptr<int64_t>(),
                         .log_prob = chunk.log_prob.mutable_data_ptr<float>(),
                         .rows = logits.size(0),
                         .vocabulary = smoothing.vocabulary,
                         .row_stride = logits.size(1),
                         .smoothing = static_cast<float>(smoothing.share),
                         .gradient = want == Want::kGradients,
                         .type = element_type(logits)});
  if (want == Want::kGradients) chunk.d_logits = logits;
}

// Chunks of fp32 logits of about this size. A GPU wants large products and has the memory.
int64_t rows_per_chunk(const Head& head) {
  const auto row_bytes =
      head.weight.size(0) * static_cast<int64_t>(c10::elementSize(row_dtype(head.hidden)));
  const int64_t bytes = head.options.logits_bytes * (head.hidden.is_cuda() ? kCudaChunkFactor : 1);
  return std::max<int64_t>(1, bytes / row_bytes);
}

// In place; returns the cap's derivative where gradients are wanted.
at::Tensor cap_logits(at::Tensor& logits, double cap, Want want) {
  if (cap == 0) return {};
  const auto tanh = logits.div_(cap).tanh_();
  auto slope = want == Want::kGradients ? tanh.square().neg_().add_(1) : at::Tensor();
  logits.mul_(cap);
  return slope;
}

template <typename Visit>
void for_each_chunk(const Head& head, Want want, Visit visit) {
  const int64_t step = rows_per_chunk(head);
  const bool fused = head.hidden.is_cuda() && head.hidden.scalar_type() != at::kDouble;
  for (int64_t begin = 0; begin < head.hidden.size(0); begin += step) {
    const int64_t rows = std::min(step, head.hidden.size(0) - begin);
    Chunk chunk{.begin = begin, .hidden = head.hidden.narrow(0, begin, rows)};
    auto logits = at::mm(chunk.hidden, head.weight.t());
    const auto slope = cap_logits(logits, head.options.cap, want);
    const auto targets = head.targets.narrow(0, begin, rows);
    const auto finish = fused ? finish_fused : finish_plain;
    finish(chunk, logits, targets, {head.vocabulary(), head.options.smoothing}, want);
    if (slope.defined()) chunk.d_logits.mul_(slope);
    visit(chunk);
  }
}

// Collects d_hidden and d_weight over the chunks.
//
// What a row counts for (`scale`) meets the fp32 products, never the 16-bit d_logits or hidden: of
// all rows about alike, as the reciprocal of a number of targets is, it would be rounded to the
// same side in every row, and all gradients below would be too long or too short by up to 0.4 %. In
// d_weight, where rows are summed, the largest scale waits for the sum, and rows meet their share
// of it: 1 where all are alike.
class Gradients {
 public:
  // `scale` (N): fp32, fp64 for float64 inputs.
  Gradients(const Head& head, const at::Tensor& scale, bool hidden_wanted, bool weight_wanted)
      : weight_(head.weight), scale_(scale.unsqueeze(1)) {
    if (hidden_wanted) d_hidden_ = at::empty(head.hidden.sizes(), head.hidden.options());
    if (!weight_wanted) return;
    // Sums over chunks of 16-bit weights are formed in fp32, at twice the bytes of d_weight.
    d_weight_ = at::zeros(weight_.sizes(), weight_.options().dtype(row_dtype(weight_)));
    if (!is_16_bit()) return;
    constexpr double kTiny = 1e-30;  // all rows count nothing
    largest_ = scale_.numel() > 0
                   ? at::maximum(scale_.amax(), scale_.amin().neg()).clamp_min(kTiny).view({1})
                   : at::ones({1}, scale_.options());
    share_ = scale_ / largest_;
  }

  void add(const Chunk& chunk) {
    const auto rows = [&](const at::Tensor& all) {
      return all.narrow(0, chunk.begin, chunk.hidden.size(0));
    };
    if (d_hidden_.defined()) {
      auto place = rows(d_hidden_);
      at::mul_out(place, wide_product(chunk.d_logits, weight_), rows(scale_));
    }
    if (!d_weight_.defined()) return;
    const auto hidden = (chunk.hidden * rows(is_16_bit() ? share_ : scale_));
    add_to_weight(chunk.d_logits.t(), hidden.to(weight_.scalar_type()));
  }

  const at::Tensor& d_hidden() const { return d_hidden_; }
  // In the weight's dtype; the wide sum is let go.
  at::Tensor take_d_weight() {
    auto sum = std::exchange(d_weight_, at::Tensor());
    if (!sum.defined() || !is_16_bit()) return sum;
    auto narrow = at::empty(sum.sizes(), weight_.options());
    return at::mul_out(narrow, sum, largest_);
  }

 private:
  bool is_16_bit() const { return weight_.element_size() == 2; }

  // Of 16-bit factors in fp32: rounded once, after it is scaled. CPUs have no such product.
  at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) const {
    if (!is_16_bit()) return at::mm(a, b);
    return a.is_cuda() ? at::mm(a, b, at::kFloat) : at::mm(a.to(at::kFloat), b.to(at::kFloat));
  }

  void add_to_weight(const at::Tensor& a, const at::Tensor& b) {
    if (!is_16_bit()) {
      d_weight_.addmm_(a, b);
    } else if (a.is_cuda()) {
      at::addmm_out(d_weight_, d_weight_, a, b, at::kFloat);
    } else {
      d_weight_.addmm_(a.to(at::kFloat), b.to(at::kFloat));
    }
  }

  at::Tensor weight_, d_hidden_, d_weight_;
  at::Tensor scale_;            // (N, 1)
  at::Tensor largest_, share_;  // (1) and (N, 1): their product is the scale
};

// What is constant to autograd.
struct Rows {
  at::Tensor targets;  // (N)
  at::Tensor weights;  // (N) float64
  // Wanted at all? Inside Function::forward grad mode is always off, so it is read outside.
  bool gradients = true;
  HeadOptions options;
};

// Hands out a gradient that forward left, times the loss's. One element, not none: a scalar tensor
// would take the gradient's dtype before the product and be rounded to it.
at::Tensor take_scaled(AutogradContext* context, const char* name, const at::Tensor& factor) {
  const auto found = context->saved_data.find(name);
  SKEIN_CHECK(found != context->saved_data.end(), "this loss was differentiated before");
  auto gradient = found->second.toTensor();
  context->saved_data.erase(found);
  if (gradient.defined()) gradient.mul_(factor.to(row_dtype(gradient)).view({1}));
  return gradient;
}

struct CrossEntropySum : Function<CrossEntropySum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const Rows& rows) {
    const Head head{hidden, weight, rows.targets, rows.options};
    const bool hidden_wanted = rows.gradients && hidden.requires_grad();
    const bool weight_wanted = rows.gradients && weight.requires_grad();
    const auto want = hidden_wanted || weight_wanted ? Want::kGradients : Want::kValues;
    const auto weights = rows.weights.neg();
    Gradients gradients(head, weights.to(row_dtype(hidden)), hidden_wanted, weight_wanted);
    auto loss = at::zeros({}, weights.options());
    for_each_chunk(head, want, [&](const Chunk& chunk) {
      loss += (chunk.log_prob * weights.narrow(0, chunk.begin, chunk.hidden.size(0))).sum();
      if (want == Want::kGradients) gradients.add(chunk);
    });
    context->saved_data["d_hidden"] = gradients.d_hidden();
    context->saved_data["d_weight"] = gradients.take_d_weight();
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    auto d_hidden = take_scaled(context, "d_hidden", incoming[0]);
    return {std::move(d_hidden), take_scaled(context, "d_weight", incoming[0]), {}};
  }
};

struct LogProbs : Function<LogProbs> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& targets,
                            const HeadOptions& options) {
    auto log_probs = at::empty(targets.sizes(), hidden.options().dtype(row_dtype(hidden)));
    for_each_chunk({hidden, weight, targets, options}, Want::kValues, [&](const Chunk& chunk) {
      log_probs.narrow(0, chunk.begin, chunk.hidden.size(0)).copy_(chunk.log_prob);
    });
    context->save_for_backward({hidden, weight, targets});
    context->saved_data["logits_bytes"] = options.logits_bytes;
    context->saved_data["vocabulary"] = options.vocabulary;
    context->saved_data["cap"] = options.cap;
    return log_probs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    const HeadOptions options{number("logits_bytes"), number("vocabulary"),
                              context->saved_data["cap"].toDouble()};
    const Head head{saved[0], saved[1], saved[2], options};
    Gradients gradients(head, incoming[0], context->needs_input_grad(0),
                        context->needs_input_grad(1));
    for_each_chunk(head, Want::kGradients, [&](const Chunk& chunk) { gradients.add(chunk); });
    return {gradients.d_hidden(), gradients.take_d_weight(), {}, {}};
  }
};

void check_shapes(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                  const HeadOptions& options) {
  SKEIN_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1),
              "hidden must be (N, C) and weight (V, C)");
  SKEIN_CHECK(options.vocabulary >= 0 && options.vocabulary <= weight.size(0),
              "the vocabulary has at most the weight's rows");
  SKEIN_CHECK(targets.dim() == 1 && targets.size(0) == hidden.size(0), "targets must be (N)");
  SKEIN_CHECK(options.smoothing >= 0 && options.smoothing < 1, "smoothing must be in [0, 1)");
}

}  // namespace

at::Tensor linear_cross_entropy_sum(const at::Tensor& hidden, const at::Tensor& weight,
                                    const at::Tensor& targets, const at::Tensor& weights,
                                    const HeadOptions& options) {
  check_shapes(hidden, weight, targets, options);
  const auto wide = hidden.options().dtype(at::kDouble).requires_grad(false);
  const Rows rows{
      .targets = targets,
      .weights = weights.defined() ? weights.detach().to(wide) : at::ones(targets.sizes(), wide),
      .gradients = c10::GradMode::is_enabled(),
      .options = options};
  SKEIN_CHECK(rows.weights.sizes() == targets.sizes(), "weights must be (N)");
  return CrossEntropySum::apply(hidden, weight, rows);
}

at::Tensor linear_log_probs(const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& targets, const HeadOptions& options) {
  check_shapes(hidden, weight, targets, options);
  SKEIN_CHECK(options.smoothing == 0, "probabilities are not smoothed");
  return LogProbs::apply(hidden, weight, targets, options);
}

}  // namespace skein::ops
