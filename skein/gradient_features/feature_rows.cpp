// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/feature_rows.h"

#include <ATen/ops/zeros.h>

#include "skein/gradient_features/files/projection.h"
#include "skein/gradient_features/sign_projection.h"

namespace skein::gradient_features {
namespace {

// With its shape and sides.
std::vector<ProjectedParameter> projected_parameters(const tensor::ParameterTable& table,
                                                     const FeatureOptions& options) {
  std::vector<ProjectedParameter> parameters;
  for (size_t i = 0; i < options.parameters.size(); ++i) {
    const auto& name = options.parameters[i];
    parameters.push_back({name, table.find(name)->shape, options.sides[i]});
  }
  return parameters;
}

}  // namespace

FeatureRows::FeatureRows(const model::Model& model, parallel::Sharded& sharded,
                         const FeatureOptions& options)
    : gradients_(model, sharded, options.parameters, options.memory / options.form.buffers()),
      form_(options.form),
      dimension_(options.dimension) {
  const auto& first = *model.table().parameters.front().slot;
  const bool is_double = first.scalar_type() == at::kDouble;
  result_ = at::TensorOptions(first.device()).dtype(is_double ? at::kDouble : at::kFloat);
  if (!options.sides.empty()) {
    factors_.emplace(projected_parameters(model.table(), options), options.seed, result_);
    return;
  }
  for (const auto& name : options.parameters) {
    streams_[name] = projection_stream(options.seed, name);
  }
}

at::Tensor FeatureRows::compute(const tensor::HostBatch& run) {
  if (!factors_) return compute_dense(run);
  FactorProjection::Rows rows(*factors_, run.document_ends);
  gradients_.compute_layers(run, [&](const model::TappedLinear& linear,
                                     const tensor::Tapped& seen) { rows.add(linear, seen); });
  return rows.sums();
}

at::Tensor FeatureRows::compute_dense(const tensor::HostBatch& run) {
  const auto sums = at::zeros({std::ssize(run.document_ends), dimension_}, result_);
  gradients_.compute(run, [&](const SampleGradients::Part& part) {
    form_.apply(part.rows, part.name, part.first_element);
    add_projection(sums.narrow(0, part.first_document, part.rows.size(0)), part.rows,
                   streams_.at(part.name), part.first_element);
  });
  return sums;
}

}  // namespace skein::gradient_features
