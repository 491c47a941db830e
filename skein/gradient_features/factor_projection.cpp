// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/factor_projection.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "skein/gradient_features/files/projection_signs.h"

namespace skein::gradient_features {
namespace {

at::Tensor make_signs(uint64_t stream, int64_t elements, int64_t columns,
                      const at::TensorOptions& options) {
  const auto signs = at::empty({elements, columns}, at::kFloat);
  fill_signs(stream, {0, elements, 0, columns}, signs.mutable_data_ptr<float>());
  return signs.to(options);
}

// seen (T, n) · matrix (n, c), in the matrix's type. On GPUs bf16 is multiplied as it is, with fp32
// sums: a copy in fp32 would be most of what a layer costs. The matrix is then split into two terms
// of bf16: signs are exact, and of an adapter's numbers less than 2^-16 is lost.
at::Tensor project(const at::Tensor& seen, const at::Tensor& matrix) {
  if (!seen.is_cuda() || seen.scalar_type() != at::kBFloat16) {
    return at::mm(seen.to(matrix.scalar_type()), matrix);
  }
  const auto high = matrix.to(at::kBFloat16), low = (matrix - high).to(at::kBFloat16);
  const auto both = at::mm(seen, at::cat({high, low}, 1), at::kFloat).chunk(2, 1);
  return both[0] + both[1];
}

// What one of the tensors that a layer has seen is multiplied by, for all sides that come from it
// together: reading it is what takes time. Columns are taken in the order in which they were added.
class Columns {
 public:
  void add(const Factor& factor, const at::Tensor& signs) {
    matrices_.push_back(factor.through.defined() ? at::mm(factor.through, signs).mul_(factor.scale)
                                                 : signs);
  }

  void multiply(const at::Tensor& seen, const DocumentPieces& pieces) {
    pieces_ = pieces.cut(project(seen, at::cat(matrices_, 1)));
  }

  at::Tensor take(int64_t count) {
    return pieces_.narrow(2, std::exchange(next_, next_ + count), count);
  }

 private:
  std::vector<at::Tensor> matrices_;
  at::Tensor pieces_;  // (pieces, tokens, columns)
  int64_t next_ = 0;
};

at::Tensor tensor_of(Seen what, const tensor::Tapped& seen) {
  if (what == Seen::kInput) return seen.input.flatten(0, -2);
  const auto d_y = seen.output_gradient.flatten(0, -2);
  return what == Seen::kOutputGradient ? d_y : at::ones({d_y.size(0), 1}, d_y.options());
}

}  // namespace

FactorProjection::FactorProjection(const std::vector<ProjectedParameter>& parameters, uint64_t seed,
                                   const at::TensorOptions& options)
    : options_(options) {
  for (const auto& parameter : parameters) {
    const auto signs = [&](Side side, int64_t elements, int64_t columns) {
      return make_signs(factor_stream(seed, parameter.name, side), elements, columns, options);
    };
    const auto& sides = parameter.sides;
    parameters_[parameter.name] = {sides, signs(Side::kLeft, parameter.height(), sides.left),
                                   signs(Side::kRight, parameter.width(), sides.right), columns_};
    columns_ += sides.columns();
  }
}

FactorProjection::Rows::Rows(const FactorProjection& projection, std::span<const int32_t> ends)
    : projection_(projection),
      pieces_(ends, projection.options_.device()),
      products_(at::zeros({pieces_.count(), projection.columns_}, projection.options_)) {}

void FactorProjection::Rows::add(const model::TappedLinear& linear, const tensor::Tapped& seen) {
  const auto& parameters = projection_.parameters_;
  const auto pairs =
      factors_of(linear, [&](const std::string& name) { return parameters.contains(name); });
  std::map<Seen, Columns> columns;
  for (const auto& [name, left, right] : pairs) {
    columns[left.seen].add(left, parameters.at(name).left);
    columns[right.seen].add(right, parameters.at(name).right);
  }
  for (auto& [what, own] : columns) own.multiply(tensor_of(what, seen), pieces_);
  for (const auto& [name, left, right] : pairs) {
    const auto& parameter = parameters.at(name);
    const auto& sides = parameter.sides;
    const auto lefts = columns[left.seen].take(sides.left);
    const auto rights = columns[right.seen].take(sides.right);
    products_.narrow(1, parameter.first_column, sides.columns())
        .view({pieces_.count(), sides.left, sides.right})
        .baddbmm_(lefts.transpose(1, 2), rights);
  }
}

}  // namespace skein::gradient_features
