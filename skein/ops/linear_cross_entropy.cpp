// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/linear_cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv.h>
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
#include <array>
#include <optional>
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
  HeadProduct product;
  at::Tensor targets;  // (N)
  HeadOptions options;

  int64_t rows() const { return product.hidden.size(0); }
  int64_t vocabulary() const {
    return options.vocabulary > 0 ? options.vocabulary : product.weight.size(0);
  }
};

// Those that are there, as autograd takes them.
variable_list tensors_of(const HeadProduct& product) {
  variable_list tensors{product.hidden, product.weight};
  if (product.b.defined()) tensors.insert(tensors.end(), {product.inner, product.b});
  if (product.factor.defined()) tensors.push_back(product.factor);
  return tensors;
}
HeadProduct product_of(at::TensorList tensors) {
  HeadProduct product{tensors[0], tensors[1]};
  if (tensors.size() > 2) {
    product.inner = tensors[2];
    product.b = tensors[3];
  }
  if (tensors.size() > 4) product.factor = tensors[4];
  return product;
}

// d_logits lie between -1 and 1 and are as small as probabilities: in float16, which ends at 6e-8,
// most of a large vocabulary's would be rounded away before they meet the row's weight, and the
// loss scale in it. So they are held times a power of two, which is exact, and the weights are
// divided by it. A factor, which they meet in 16 bits, may be larger than 1.
double gain_of(const HeadProduct& product) {
  if (product.hidden.scalar_type() != at::kHalf) return 1;
  return product.factor.defined() ? 0x1p8 : 0x1p15;
}

// What one chunk of rows gives.
struct Chunk {
  int64_t begin = 0;               // first row
  int64_t rows = 0;                // n
  at::Tensor log_prob;             // (n) of the (smoothed) targets, 0 where ignored
  at::Tensor entropy, mean_logit;  // (n), where asked for; 0 where ignored
  at::Tensor unscaled;  // (n, P) logits before the factor, where there is one and gradients are
  at::Tensor
      d_logits;  // (n, P) gradient of log_prob times gain_of(), where asked for; 0 in padding

  // Its rows of a tensor (N, …).
  at::Tensor of(const at::Tensor& all) const { return all.narrow(0, begin, rows); }
};

enum class Want { kValues, kGradients };

// What a target is: 1 - share of its own token, and the share over all.
struct Smoothing {
  int64_t vocabulary = 0;
  double share = 0;
  double gain = 1;         // of the gradient
  double temperature = 1;  // divides the logits, once they are wide: a sampler does it so
  double everywhere() const { return share / static_cast<double>(vocabulary); }
};

at::Tensor log_softmax_of(const at::Tensor& logits, double temperature) {
  const auto wide = row_dtype(logits);
  return at::log_softmax(temperature == 1 ? logits : logits.to(wide) / temperature, 1, wide);
}

// The plain formula; the gradient takes the memory of the log-probabilities.
void finish_plain(Chunk& chunk, const at::Tensor& padded_logits, const at::Tensor& targets,
                  const Smoothing& smoothing, Want want) {
  const auto vocabulary = smoothing.vocabulary;
  const auto logits = padded_logits.narrow(1, 0, vocabulary);
  const auto valid = targets.ne(tensor::kIgnore);
  const auto index = (targets * valid).unsqueeze(1);
  auto log_probs = log_softmax_of(logits, smoothing.temperature);
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
  if (smoothing.gain != 1) gradient.mul_(smoothing.gain);
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
                         .gain = static_cast<float>(smoothing.gain),
                         .sharpness = static_cast<float>(1 / smoothing.temperature),
                         .gradient = want == Want::kGradients,
                         .type = element_type(logits)});
  if (want == Want::kGradients) chunk.d_logits = logits;
}

// Chunks of fp32 logits of about this size. A GPU wants large products and has the memory.
int64_t rows_per_chunk(const Head& head) {
  const auto& [hidden, weight, inner, b, factor] = head.product;
  const auto row_bytes = weight.size(0) * static_cast<int64_t>(c10::elementSize(row_dtype(hidden)));
  const int64_t bytes = head.options.logits_bytes * (hidden.is_cuda() ? kCudaChunkFactor : 1);
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

at::Tensor logits_of(Chunk& chunk, const HeadProduct& product, Want want) {
  const auto& [hidden, weight, inner, b, factor] = product;
  auto logits = at::mm(chunk.of(hidden), weight.t());
  if (b.defined()) logits.addmm_(chunk.of(inner), b.to(logits.scalar_type()).t());
  if (!factor.defined()) return logits;
  if (want == Want::kGradients) chunk.unscaled = logits.clone();
  return logits.mul_(factor);
}

// What is asked beside the targets' own, of logits that no kernel has changed yet.
void look_at_rows(Chunk& chunk, const at::Tensor& padded_logits, const Head& head) {
  const auto& options = head.options;
  if (!options.entropy && !options.mean_logit) return;
  const auto logits = padded_logits.narrow(1, 0, head.vocabulary());
  const auto valid = chunk.of(head.targets).ne(tensor::kIgnore);
  if (options.mean_logit) chunk.mean_logit = logits.mean(1, false, row_dtype(logits)) * valid;
  if (!options.entropy) return;
  const auto log_probs = log_softmax_of(logits, options.temperature);
  chunk.entropy = (log_probs.exp().mul_(log_probs)).sum(1).neg_().mul_(valid);
}

template <typename Visit>
void for_each_chunk(const Head& head, Want want, Visit visit) {
  const int64_t step = rows_per_chunk(head);
  const auto& hidden = head.product.hidden;
  const bool fused = hidden.is_cuda() && hidden.scalar_type() != at::kDouble;
  for (int64_t begin = 0; begin < head.rows(); begin += step) {
    Chunk chunk{.begin = begin, .rows = std::min(step, head.rows() - begin)};
    auto logits = logits_of(chunk, head.product, want);
    const auto slope = cap_logits(logits, head.options.cap, want);
    if (want == Want::kValues) look_at_rows(chunk, logits, head);
    const auto finish = fused ? finish_fused : finish_plain;
    finish(chunk, logits, chunk.of(head.targets),
           {head.vocabulary(), head.options.smoothing, gain_of(head.product),
            head.options.temperature},
           want);
    if (slope.defined()) chunk.d_logits.mul_(slope);
    visit(chunk);
  }
}

// Collects the gradients of the factors of a product hidden · weightᵀ over the chunks.
//
// What a row counts for (`scale`) meets the fp32 products, never the 16-bit d_logits or hidden: of
// all rows about alike, as the reciprocal of a number of targets is, it would be rounded to the
// same side in every row, and all gradients below would be too long or too short by up to 0.4 %. In
// d_weight, where rows are summed, the largest scale waits for the sum, and rows meet their share
// of it: 1 where all are alike.
class Gradients {
 public:
  struct Factors {
    at::Tensor hidden;  // (N, C)
    at::Tensor weight;  // (P, C); may be wider
  };
  // `scale` (N): fp32, fp64 for float64 inputs.
  Gradients(const Factors& factors, const at::Tensor& scale, bool hidden_wanted, bool weight_wanted)
      : hidden_(factors.hidden),
        weight_(factors.weight.to(factors.hidden.scalar_type())),
        d_weight_dtype_(factors.weight.scalar_type()),
        scale_(scale.unsqueeze(1)) {
    if (hidden_wanted) d_hidden_ = at::empty(hidden_.sizes(), hidden_.options());
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
    if (d_hidden_.defined()) {
      auto place = chunk.of(d_hidden_);
      at::mul_out(place, wide_product(chunk.d_logits, weight_), chunk.of(scale_));
    }
    if (!d_weight_.defined()) return;
    const auto hidden = chunk.of(hidden_) * chunk.of(is_16_bit() ? share_ : scale_);
    add_to_weight(chunk.d_logits.t(), hidden.to(weight_.scalar_type()));
  }

  const at::Tensor& d_hidden() const { return d_hidden_; }
  // In the weight's dtype; the wide sum is let go.
  at::Tensor take_d_weight() {
    auto sum = std::exchange(d_weight_, at::Tensor());
    if (!sum.defined() || !is_16_bit()) return sum;
    if (d_weight_dtype_ == sum.scalar_type()) return sum.mul_(largest_);
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

  at::Tensor hidden_, weight_, d_hidden_, d_weight_;
  at::ScalarType d_weight_dtype_;
  at::Tensor scale_;            // (N, 1)
  at::Tensor largest_, share_;  // (1) and (N, 1): their product is the scale
};

// Of tensors_of(), in their order.
using Wanted = std::array<bool, 5>;

class HeadGradients {
 public:
  HeadGradients(const HeadProduct& product, const at::Tensor& scale, const Wanted& wanted)
      : scale_(gain_of(product) == 1 ? scale : scale / gain_of(product)), factor_(product.factor) {
    weight_.emplace(Gradients::Factors{product.hidden, product.weight}, scale_, wanted[0],
                    wanted[1]);
    if (product.b.defined()) {
      adapter_.emplace(Gradients::Factors{product.inner, product.b}, scale_, wanted[2], wanted[3]);
    }
    if (wanted[4]) d_factor_ = at::zeros(factor_.sizes(), scale.options());
  }

  void add(Chunk& chunk) {
    if (d_factor_.defined()) {
      const auto wide = scale_.scalar_type();
      d_factor_.addmv_((chunk.unscaled.to(wide).mul_(chunk.d_logits)).t(), chunk.of(scale_));
    }
    if (factor_.defined()) chunk.d_logits.mul_(factor_);
    weight_->add(chunk);
    if (adapter_) adapter_->add(chunk);
  }

  variable_list take() {
    variable_list gradients{weight_->d_hidden(), weight_->take_d_weight()};
    if (adapter_) {
      gradients.insert(gradients.end(), {adapter_->d_hidden(), adapter_->take_d_weight()});
    }
    if (factor_.defined()) gradients.push_back(d_factor_);
    return gradients;
  }

 private:
  std::optional<Gradients> weight_, adapter_;
  at::Tensor scale_;  // (N) over the gain
  at::Tensor factor_, d_factor_;
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

constexpr const char* kNames[] = {"d_hidden", "d_weight", "d_inner", "d_b", "d_factor"};

struct CrossEntropySum : Function<CrossEntropySum> {
  static at::Tensor forward(AutogradContext* context, at::TensorList tensors, const Rows& rows) {
    const Head head{product_of(tensors), rows.targets, rows.options};
    Wanted wanted{};
    std::ranges::transform(tensors, wanted.begin(), [&](const at::Tensor& tensor) {
      return rows.gradients && tensor.requires_grad();
    });
    const auto want = std::ranges::count(wanted, true) > 0 ? Want::kGradients : Want::kValues;
    const auto weights = rows.weights.neg();
    HeadGradients gradients(head.product, weights.to(row_dtype(head.product.hidden)), wanted);
    auto loss = at::zeros({}, weights.options());
    for_each_chunk(head, want, [&](Chunk& chunk) {
      loss += (chunk.log_prob * chunk.of(weights)).sum();
      if (want == Want::kGradients) gradients.add(chunk);
    });
    const auto found = gradients.take();
    for (size_t i = 0; i < found.size(); ++i) context->saved_data[kNames[i]] = found[i];
    context->saved_data["count"] = static_cast<int64_t>(found.size());
    return loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    variable_list gradients;
    const auto count = static_cast<size_t>(context->saved_data["count"].toInt());
    for (size_t i = 0; i < count; ++i) {
      gradients.push_back(take_scaled(context, kNames[i], incoming[0]));
    }
    gradients.emplace_back();  // the rows
    return gradients;
  }
};

struct LogProbs : Function<LogProbs> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               const at::Tensor& targets, const HeadOptions& options) {
    const auto product = product_of(tensors);
    const auto rows = [&](bool wanted) {
      const auto& hidden = product.hidden;
      return wanted ? at::empty(targets.sizes(), hidden.options().dtype(row_dtype(hidden)))
                    : at::Tensor();
    };
    const auto log_probs = rows(true), entropy = rows(options.entropy),
               mean_logits = rows(options.mean_logit);
    for_each_chunk({product, targets, options}, Want::kValues, [&](const Chunk& chunk) {
      chunk.of(log_probs).copy_(chunk.log_prob);
      if (options.entropy) chunk.of(entropy).copy_(chunk.entropy);
      if (options.mean_logit) chunk.of(mean_logits).copy_(chunk.mean_logit);
    });
    variable_list saved = tensors.vec();
    saved.push_back(targets);
    context->save_for_backward(saved);
    context->saved_data["logits_bytes"] = options.logits_bytes;
    context->saved_data["vocabulary"] = options.vocabulary;
    context->saved_data["cap"] = options.cap;
    context->saved_data["temperature"] = options.temperature;
    variable_list out{log_probs}, constant;
    if (options.entropy) constant.push_back(entropy);
    if (options.mean_logit) constant.push_back(mean_logits);
    context->mark_non_differentiable(constant);
    out.insert(out.end(), constant.begin(), constant.end());
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto number = [&](const char* name) { return context->saved_data[name].toInt(); };
    const double temperature = context->saved_data["temperature"].toDouble();
    const HeadOptions options{.logits_bytes = number("logits_bytes"),
                              .vocabulary = number("vocabulary"),
                              .cap = context->saved_data["cap"].toDouble(),
                              .temperature = temperature};
    const auto tensors = at::TensorList(saved).slice(0, saved.size() - 1);
    const Head head{product_of(tensors), saved.back(), options};
    Wanted wanted{};
    for (size_t i = 0; i < tensors.size(); ++i) wanted[i] = context->needs_input_grad(i);
    const auto scale = temperature == 1 ? incoming[0] : incoming[0] / temperature;
    HeadGradients gradients(head.product, scale, wanted);
    for_each_chunk(head, Want::kGradients, [&](Chunk& chunk) { gradients.add(chunk); });
    auto found = gradients.take();
    found.resize(found.size() + 2);  // targets, options
    return found;
  }
};

void check_shapes(const HeadProduct& product, const at::Tensor& targets,
                  const HeadOptions& options) {
  const auto& [hidden, weight, inner, b, factor] = product;
  SKEIN_CHECK(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1),
              "hidden must be (N, C) and weight (V, C)");
  SKEIN_CHECK(inner.defined() == b.defined() && (b.defined() || !factor.defined()),
              "an adapter has both of its parts, and a factor is an adapter's");
  SKEIN_CHECK(!b.defined() || (inner.size(0) == hidden.size(0) && b.size(0) == weight.size(0) &&
                               inner.size(1) == b.size(1)),
              "inner must be (N, rank) and b (V, rank)");
  SKEIN_CHECK(!factor.defined() || (factor.dim() == 1 && factor.size(0) == weight.size(0)),
              "factor must be (V)");
  SKEIN_CHECK(options.vocabulary >= 0 && options.vocabulary <= weight.size(0),
              "the vocabulary has at most the weight's rows");
  SKEIN_CHECK(targets.dim() == 1 && targets.size(0) == hidden.size(0), "targets must be (N)");
  SKEIN_CHECK(options.smoothing >= 0 && options.smoothing < 1, "smoothing must be in [0, 1)");
}

}  // namespace

at::Tensor linear_cross_entropy_sum(const HeadProduct& product, const at::Tensor& targets,
                                    const at::Tensor& weights, const HeadOptions& options) {
  check_shapes(product, targets, options);
  const auto wide = product.hidden.options().dtype(at::kDouble).requires_grad(false);
  const Rows rows{
      .targets = targets,
      .weights = weights.defined() ? weights.detach().to(wide) : at::ones(targets.sizes(), wide),
      .gradients = c10::GradMode::is_enabled(),
      .options = options};
  SKEIN_CHECK(rows.weights.sizes() == targets.sizes(), "weights must be (N)");
  const auto tensors = tensors_of(product);
  return CrossEntropySum::apply(at::TensorList(tensors), rows);
}

RowNumbers linear_log_probs(const HeadProduct& product, const at::Tensor& targets,
                            const HeadOptions& options) {
  check_shapes(product, targets, options);
  SKEIN_CHECK(options.smoothing == 0, "probabilities are not smoothed");
  SKEIN_CHECK(options.temperature > 0, "a temperature is positive");
  const auto tensors = tensors_of(product);
  const auto out = LogProbs::apply(at::TensorList(tensors), targets, options);
  RowNumbers numbers{out[0]};
  if (options.entropy) numbers.entropy = out[1];
  if (options.mean_logit) numbers.mean_logits = out.back();
  return numbers;
}

}  // namespace skein::ops
