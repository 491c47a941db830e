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
    elements_ += model.table().find(name)->numel();
  }
}

at::Tensor FeatureRows::compute(const tensor::HostBatch& run, const GoesOn& goes_on) {
  const GoesOn always = [](double) { return true; };
  const auto& asked = goes_on ? goes_on : always;
  return factors_ ? compute_factors(run, asked) : compute_dense(run, asked);
}

at::Tensor FeatureRows::compute_factors(const tensor::HostBatch& run, const GoesOn& goes_on) {
  FactorProjection::Rows rows(*factors_, run.document_ends);
  double layers = 0;
  bool more = true;
  gradients_.compute_layers(
      run, [&](const model::TappedLinear& linear, const tensor::Tapped& seen) {
        if (!more) return;
        rows.add(linear, seen);
        more = goes_on(++layers / static_cast<double>(gradients_.num_layers()));
      });
  return rows.sums();
}

at::Tensor FeatureRows::compute_dense(const tensor::HostBatch& run, const GoesOn& goes_on) {
  const int64_t documents = std::ssize(run.document_ends);
  const auto sums = at::zeros({documents, dimension_}, result_);
  const auto all = static_cast<double>(documents) * static_cast<double>(elements_);
  double done = 0;
  bool more = true;
  gradients_.compute(run, [&](const SampleGradients::Part& part) {
    const int64_t samples = part.rows.size(0);
    form_.apply(part.rows, part.name, part.first_element);
    add_projection(sums.narrow(0, part.first_document, samples), part.rows, streams_.at(part.name),
                   part.first_element, [&](int64_t elements) {
                     done += static_cast<double>(samples * elements);
                     more = goes_on(done / all);
                     return more;
                   });
    return more;
  });
  return sums;
}

}  // namespace skein::gradient_features
