// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How much arithmetic does a token cost, and how much of the device does that use?
//
// Counted from the shapes, as useful work:
//   F = 6 * N_mm + 6 * layers * heads * head_dim * T      FLOPs per token of a document of T
// (in layers with a window W < T, 2 W - W²/T in place of T: what a token sees on average, twice)
// N_mm: weights that take part in a matrix product, which is every projection and the output head,
// tied or not; not the input embedding (a lookup), norms or biases. A multiply-add is 2 FLOPs and
// backward costs twice the forward, hence 6. Causal attention is counted as the half of the T x T
// products that is needed: scores and weighted values are 2 * T * heads * head_dim each per token
// and layer, halved by the mask, times three. Recomputed activations are not useful work. Frozen
// weights have no gradient, hence 4 in place of 6; adapters count like weights; blocks before
// everything that trains run forward alone.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "skein/plan/families/architecture.h"

namespace skein::plan {

int64_t matmul_parameters(const Dimensions& dimensions);
// Forward and backward; `sequence_length` is what attention looks back over at most.
double training_flops_per_token(const Dimensions& dimensions, int64_t sequence_length);

// What a component of the model costs.
struct FlopsPart {
  const char* component = "";
  double flops = 0;
};

// The same where not all of the model trains: `shapes` are those of plan::tune().
class TrainingFlops {
 public:
  TrainingFlops(const Dimensions& dimensions, const Shapes& shapes);

  double per_token(int64_t sequence_length) const;
  // Of a document, which attention does not leave.
  double of_document(int64_t num_tokens) const;
  // Of documents of these lengths, by component; together what of_document() says of each.
  std::vector<FlopsPart> parts(std::span<const int64_t> lengths) const;

 private:
  // Of matrix products.
  enum Component { kProjections, kMlp, kHead, kAdapters, kNumComponents };
  static Component component_of(const ParameterShape& parameter);

  Dimensions dimensions_;
  std::array<double, kNumComponents> products_{};  // of a token
  double attention_share_ = 1;                     // of what it costs where everything trains
};

// Model FLOPs utilisation: the useful share of what `num_devices` could do at `peak_flops` each.
double model_flops_utilisation(double flops_per_second, double peak_flops, int64_t num_devices);

}  // namespace skein::plan
