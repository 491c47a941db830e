// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/model/embedding_noise.h"

#include <ATen/ops/diff.h>
#include <ATen/ops/repeat_interleave.h>

#include "skein/core/error.h"
#include "skein/ops/dropout.h"

namespace skein::model {

ops::EmbeddingNoise noise_of(double alpha, const tensor::Batch& batch, const tensor::StepKey& key) {
  if (alpha == 0 || !key.training) return {};
  ops::EmbeddingNoise noise{
      .alpha = alpha,
      .stream = ops::dropout_stream(key, /*layer=*/-1, ops::DropoutSite::kEmbeddingNoise),
      .documents = batch.documents,
      .lengths = batch.row_lengths};
  if (!batch.run) return noise;
  const auto& run = *batch.run;
  SKEIN_CHECK(!run.shared.any(), "noise on a shared prompt would be that of no answer's length");
  noise.documents = run.documents;
  noise.positions = run.positions;
  // Each document's length at each of its tokens; the size is given, so that no GPU is waited for.
  const auto lengths = at::diff(run.bounds).to(at::kLong);
  noise.lengths = at::repeat_interleave(lengths, lengths, 0, run.positions.size(0));
  return noise;
}

}  // namespace skein::model
