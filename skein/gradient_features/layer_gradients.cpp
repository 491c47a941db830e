// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/layer_gradients.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>

#include "skein/adapter/tensor_names.h"

namespace skein::gradient_features {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

bool has_plain_adapter(const model::Linear& layer) {
  return layer.lora && !layer.lora->magnitude.defined();
}

}  // namespace

std::vector<std::string> parameters_of(const model::TappedLinear& linear) {
  const auto& layer = *linear.layer;
  if (layer.lora && !has_plain_adapter(layer)) return {};  // the output is DoRA's sum, rescaled
  std::vector<std::string> names;
  if (!layer.nf4) names.push_back(linear.name + ".weight");
  if (layer.bias.defined()) names.push_back(linear.name + ".bias");
  if (!layer.lora) return names;
  names.push_back(linear.name + adapter::kLoraA);
  names.push_back(linear.name + adapter::kLoraB);
  return names;
}

std::vector<FactorPair> factors_of(const model::TappedLinear& linear, const Wanted& wanted) {
  const auto& layer = *linear.layer;
  const Factor input{Seen::kInput}, output{Seen::kOutputGradient};
  std::vector<FactorPair> pairs;
  for (const auto& name : parameters_of(linear)) {
    if (!wanted(name)) continue;
    const auto suffix = name.substr(linear.name.size());
    if (suffix == ".weight") {
      pairs.push_back(layer.transposed ? FactorPair{name, input, output}
                                       : FactorPair{name, output, input});
    } else if (suffix == ".bias") {
      pairs.push_back({name, output, {Seen::kOne}});
    } else if (suffix == adapter::kLoraA) {
      pairs.push_back(
          {name, {Seen::kOutputGradient, wide(layer.lora->b), layer.lora->scale}, input});
    } else {
      pairs.push_back({name, output, {Seen::kInput, wide(layer.lora->a).t(), layer.lora->scale}});
    }
  }
  return pairs;
}

std::vector<OuterProduct> outer_products(const model::TappedLinear& linear,
                                         const tensor::Tapped& seen, const Wanted& wanted) {
  const auto x = wide(seen.input.flatten(0, -2));              // (T, in)
  const auto d_y = wide(seen.output_gradient.flatten(0, -2));  // (T, out)
  const auto value = [&](const Factor& factor) {
    if (factor.seen == Seen::kOne) return at::ones({d_y.size(0), 1}, d_y.options());
    const auto& whole = factor.seen == Seen::kInput ? x : d_y;
    return factor.through.defined() ? at::mm(whole, factor.through).mul_(factor.scale) : whole;
  };
  std::vector<OuterProduct> products;
  for (const auto& [name, left, right] : factors_of(linear, wanted)) {
    products.push_back({name, value(left), value(right)});
  }
  return products;
}

namespace {

// Of consecutive documents of one length.
struct EqualDocuments {
  int64_t first = 0, count = 0;   // documents
  int64_t begin = 0, length = 0;  // tokens: where they begin, and each one's
};

std::vector<EqualDocuments> equal_documents(std::span<const int32_t> ends) {
  std::vector<EqualDocuments> runs;
  int64_t begin = 0;
  for (int64_t i = 0; i < std::ssize(ends); ++i) {
    const int64_t length = ends[static_cast<size_t>(i)] - begin;
    if (runs.empty() || runs.back().length != length) {
      runs.push_back({.first = i, .begin = begin, .length = length});
    }
    ++runs.back().count;
    begin += length;
  }
  return runs;
}

}  // namespace

void for_rows(const OuterProduct& product, std::span<const int32_t> ends, int64_t memory,
              const UseRows& use) {
  const int64_t documents = std::ssize(ends), height = product.left.size(1);
  const int64_t width = product.right.size(1);
  const int64_t line = documents * width * product.left.element_size();
  const int64_t lines = std::clamp<int64_t>(memory / std::max<int64_t>(line, 1), 1, height);
  const auto runs = equal_documents(ends);
  for (int64_t first = 0; first < height; first += lines) {
    const int64_t count = std::min(lines, height - first);
    const auto rows = at::empty({documents, count * width}, product.left.options());
    for (const auto& run : runs) {
      const auto tokens = [&](const at::Tensor& of) {
        return of.narrow(0, run.begin, run.count * run.length)
            .view({run.count, run.length, of.size(1)});
      };
      const auto left = tokens(product.left).narrow(2, first, count).transpose(1, 2);
      auto out = rows.narrow(0, run.first, run.count).view({run.count, count, width});
      at::bmm_out(out, left, tokens(product.right));
    }
    use(rows, first * width);
  }
}

}  // namespace skein::gradient_features
