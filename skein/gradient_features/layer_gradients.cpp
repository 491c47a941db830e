// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/layer_gradients.h"

#include <ATen/TensorOperators.h>
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

std::vector<OuterProduct> outer_products(const model::TappedLinear& linear,
                                         const tensor::Tapped& seen,
                                         const std::function<bool(const std::string&)>& wanted) {
  const auto& layer = *linear.layer;
  const auto x = wide(seen.input.flatten(0, -2));              // (T, in)
  const auto d_y = wide(seen.output_gradient.flatten(0, -2));  // (T, out)
  std::vector<OuterProduct> products;
  const auto add = [&](const std::string& suffix, const auto& left, const auto& right) {
    if (wanted(linear.name + suffix)) products.push_back({linear.name + suffix, left(), right()});
  };
  const auto input = [&]() -> const at::Tensor& { return x; };
  const auto output = [&]() -> const at::Tensor& { return d_y; };
  for (const auto& name : parameters_of(linear)) {
    const auto suffix = name.substr(linear.name.size());
    if (suffix == ".weight") {
      layer.transposed ? add(suffix, input, output) : add(suffix, output, input);
    } else if (suffix == ".bias") {
      add(suffix, output, [&] { return at::ones({d_y.size(0), 1}, d_y.options()); });
    } else if (suffix == adapter::kLoraA) {
      add(suffix, [&] { return at::mm(d_y, wide(layer.lora->b)).mul_(layer.lora->scale); }, input);
    } else {
      add(suffix, output,
          [&] { return at::mm(x, wide(layer.lora->a).t()).mul_(layer.lora->scale); });
    }
  }
  return products;
}

void for_rows(const OuterProduct& product, std::span<const int32_t> ends, int64_t memory,
              const UseRows& use) {
  const int64_t documents = std::ssize(ends), height = product.left.size(1);
  const int64_t width = product.right.size(1);
  const int64_t line = documents * width * product.left.element_size();
  const int64_t lines = std::clamp<int64_t>(memory / std::max<int64_t>(line, 1), 1, height);
  for (int64_t first = 0; first < height; first += lines) {
    const int64_t count = std::min(lines, height - first);
    auto rows = at::empty({documents, count * width}, product.left.options());
    int64_t begin = 0;
    for (int64_t i = 0; i < documents; ++i) {
      const int64_t length = ends[static_cast<size_t>(i)] - begin;
      const auto left = product.left.narrow(0, begin, length).narrow(1, first, count);
      auto row = rows.select(0, i).view({count, width});
      at::mm_out(row, left.t(), product.right.narrow(0, begin, length));
      begin += length;
    }
    use(rows, first * width);
  }
}

}  // namespace skein::gradient_features
