// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Completions behind their prompts, as one micro-batch: a run of documents.

#include <span>
#include <vector>

#include "skein/tensor/host_batch.h"
#include "skein/train/online/prompts.h"
#include "skein/train/online/sample.h"

namespace skein::train {

// To be learned from: every token of a completion is a target. `weights` by the completions'
// numbers, 0: it is masked out. `shares`: completions of one prompt compute it once. Without any,
// one token that predicts nothing: a rank may have none.
tensor::HostBatch to_learn(const Prompts& prompts, std::span<const Sampled> samples,
                           const std::vector<double>& weights, bool shares);
// To be judged: whole texts, without targets, each a document.
tensor::HostBatch to_judge(std::span<const std::vector<int64_t>> texts);

}  // namespace skein::train
