// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/attention/shared_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logaddexp.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

namespace skein::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Queries behind each other, and the keys of each.
struct Sequences {
  at::Tensor query_bounds, key_bounds;  // (N + 1) int32
  int64_t longest_query = 0, longest_key = 0;
  bool causal = false;
  double scale = 1;
};

struct Attended {
  at::Tensor output;  // (1, H, T, D)
  at::Tensor sums;    // (H, T): log of the sum of exponentials, fp32 or fp64
};

struct Gradients {
  at::Tensor q, k, v;
};

using ForSequence = std::function<void(const std::function<at::Tensor(const at::Tensor&)>& queries,
                                       const std::function<at::Tensor(const at::Tensor&)>& keys)>;

// `work` takes its parts of tensors (1, H, T, D).
void for_sequences(const Sequences& sequences, const ForSequence& work) {
  const auto* queries = sequences.query_bounds.const_data_ptr<int32_t>();
  const auto* keys = sequences.key_bounds.const_data_ptr<int32_t>();
  const auto part_of = [](const int32_t* bounds) {
    return [begin = bounds[0], end = bounds[1]](const at::Tensor& x) {
      return x.narrow(2, begin, end - begin);
    };
  };
  for (int64_t i = 0; i + 1 < sequences.query_bounds.size(0); ++i) {
    work(part_of(queries + i), part_of(keys + i));
  }
}

Attended on_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const Sequences& sequences) {
  const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Attended found{at::empty_like(q), at::empty({q.size(1), q.size(2)}, q.options().dtype(wide))};
  const auto sums = found.sums.unsqueeze(0).unsqueeze(3);  // (1, H, T, 1)
  for_sequences(sequences, [&](const auto& queries, const auto& keys) {
    const auto [output, own_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        queries(q), keys(k), keys(v), /*dropout_p=*/0.0, sequences.causal, /*attn_mask=*/{},
        sequences.scale);
    queries(found.output).copy_(output);
    queries(sums).copy_(own_sums.unsqueeze(3));
  });
  return found;
}

Gradients backward_on_cpu(const at::Tensor& d_output, const variable_list& qkv,
                          const Attended& found, const Sequences& sequences) {
  const auto &q = qkv[0], &k = qkv[1], &v = qkv[2];
  const auto sums = found.sums.unsqueeze(0).unsqueeze(3);
  Gradients gradients{at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  for_sequences(sequences, [&](const auto& queries, const auto& keys) {
    const auto [d_q, d_k, d_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        queries(d_output), queries(q), keys(k), keys(v), queries(found.output),
        queries(sums).squeeze(3), /*dropout_p=*/0.0, sequences.causal, /*attn_mask=*/{},
        sequences.scale);
    queries(gradients.q).copy_(d_q);
    keys(gradients.k).copy_(d_k);
    keys(gradients.v).copy_(d_v);
  });
  return gradients;
}

// (1, H, T, D) as (T, H, D), and back.
at::Tensor to_rows(const at::Tensor& x) { return x.squeeze(0).transpose(0, 1); }
at::Tensor from_rows(const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }

// The kernel treats a single query per sequence in a way of its own, which backward does not know.
int64_t longest_of(int64_t length) { return std::max<int64_t>(2, length); }

Attended on_gpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const Sequences& sequences) {
  const auto found = at::_flash_attention_forward(
      to_rows(q), to_rows(k), to_rows(v), sequences.query_bounds, sequences.key_bounds,
      longest_of(sequences.longest_query), longest_of(sequences.longest_key), /*dropout_p=*/0.0,
      sequences.causal, /*return_debug_mask=*/false, sequences.scale);
  return {from_rows(std::get<0>(found)), std::get<1>(found)};
}

Gradients backward_on_gpu(const at::Tensor& d_output, const variable_list& qkv,
                          const Attended& found, const Sequences& sequences) {
  const auto state = qkv[0].options().dtype(at::kUInt64);  // of dropout, which there is none of
  const auto [d_q, d_k, d_v] = at::_flash_attention_backward(
      to_rows(d_output), to_rows(qkv[0]), to_rows(qkv[1]), to_rows(qkv[2]), to_rows(found.output),
      found.sums, sequences.query_bounds, sequences.key_bounds, longest_of(sequences.longest_query),
      longest_of(sequences.longest_key), /*dropout_p=*/0.0, sequences.causal, at::empty({2}, state),
      at::empty({}, state), sequences.scale);
  return {from_rows(d_q), from_rows(d_k), from_rows(d_v)};
}

Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const Sequences& sequences) {
  return q.is_cpu() ? on_cpu(q, k, v, sequences) : on_gpu(q, k, v, sequences);
}

Gradients attend_backward(const at::Tensor& d_output, const variable_list& qkv,
                          const Attended& found, const Sequences& sequences) {
  return d_output.is_cpu() ? backward_on_cpu(d_output, qkv, found, sequences)
                           : backward_on_gpu(d_output, qkv, found, sequences);
}

// What both directions need to know of a run.
struct Calls : torch::CustomClassHolder {
  Calls(const tensor::DocumentRun& run, double scale)
      : own{run.bounds, run.bounds, run.longest_own, run.longest_own, true, scale},
        prompt{run.shared.answer_bounds,
               run.shared.prompt_bounds,
               run.shared.longest_answers,
               run.shared.longest_prompt,
               false,
               scale},
        answer_tokens(run.shared.answer_tokens),
        prompt_tokens(run.shared.prompt_tokens) {}

  Sequences own, prompt;
  at::Tensor answer_tokens, prompt_tokens;  // their places in the run
};

// Into `found`, which is what documents see of themselves.
void merge(Attended& found, const Attended& prompt, const at::Tensor& answers) {
  const auto own_sums = found.sums.index_select(1, answers);
  const auto sums = at::logaddexp(own_sums, prompt.sums);  // (H, n)
  const auto share = [&](const at::Tensor& part) {
    return (part - sums).exp().unsqueeze(0).unsqueeze(3);  // (1, H, n, 1)
  };
  const auto output =
      share(own_sums) * found.output.index_select(2, answers) + share(prompt.sums) * prompt.output;
  found.output.index_copy_(2, answers, output.to(found.output.scalar_type()));
  found.sums.index_copy_(1, answers, sums);
}

struct SharedAttention : Function<SharedAttention> {
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const c10::intrusive_ptr<Calls>& calls) {
    const auto &answers = calls->answer_tokens, &prompts = calls->prompt_tokens;
    auto found = attend(q, k, v, calls->own);
    const auto prompt = attend(q.index_select(2, answers), k.index_select(2, prompts),
                               v.index_select(2, prompts), calls->prompt);
    merge(found, prompt, answers);
    context->save_for_backward({q, k, v, found.output, found.sums});
    context->saved_data["calls"] = c10::IValue::make_capsule(calls);
    return {found.output};
  }

  static variable_list backward(AutogradContext* context, const variable_list& incoming) {
    const auto saved = context->get_saved_variables();
    const auto calls =
        c10::static_intrusive_pointer_cast<Calls>(context->saved_data["calls"].toCapsule());
    const auto &answers = calls->answer_tokens, &prompts = calls->prompt_tokens;
    const auto &q = saved[0], &k = saved[1], &v = saved[2];
    const Attended found{saved[3], saved[4]};
    const auto d_output = incoming[0].contiguous();
    const auto sum = attend_backward(d_output, {q, k, v}, found, calls->own);
    const auto rows = [&](const at::Tensor& x) { return x.index_select(2, answers); };
    const auto keys = [&](const at::Tensor& x) { return x.index_select(2, prompts); };
    const auto more =
        attend_backward(rows(d_output), {rows(q), keys(k), keys(v)},
                        {rows(found.output), found.sums.index_select(1, answers)}, calls->prompt);
    sum.q.index_add_(2, answers, more.q);
    sum.k.index_add_(2, prompts, more.k);
    sum.v.index_add_(2, prompts, more.v);
    return {sum.q, sum.k, sum.v, {}};
  }
};

}  // namespace

at::Tensor shared_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const tensor::DocumentRun& run, std::optional<double> scale) {
  const auto calls = c10::make_intrusive<Calls>(
      run, scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3)))));
  return SharedAttention::apply(q, k, v, calls)[0];
}

}  // namespace skein::ops
