// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Collects the features of a data set, block by block, on all ranks.
//
// The blocks that are still missing are dealt to the ranks in turn; each block is committed as a
// shard of its own (files/collection.h), while the next one is computed. Where every rank holds the
// whole model they never wait for each other; where the parameters are sharded, all run equally
// many batches.

#include <cstdint>
#include <functional>

#include "skein/comm/group.h"
#include "skein/core/file.h"
#include "skein/gradient_features/block_batches.h"
#include "skein/gradient_features/feature_rows.h"
#include "skein/gradient_features/files/collection_facts.h"

namespace skein::gradient_features {

struct CollectTask {
  const model::Model& model;
  parallel::Sharded& sharded;
  RowSamples samples;
  CollectionFacts facts;
  FeatureOptions features;  // of facts.info_type kGrads
  fs::path output;
  bool skips_non_finite = false;  // else such a sample ends the collection
  bool lockstep = false;          // the parameters are sharded over the group
};

struct CollectRanks {
  comm::Group& group;
  // Asked before every batch and between the parts of one. Once it says yes it goes on saying so.
  std::function<bool()> stop_requested;
};

struct CollectResult {
  bool stopped = false;  // somebody asked for it: what is missing is collected by another start
  int64_t blocks = 0;    // done by this rank
  int64_t blocks_before = 0;  // that were there
};

// Collective. The first rank shows how far it is. Throws UserError for ranks that do not agree
// (same_facts.h), for an output folder of another collection and, in lockstep, for parameters
// without a tap (sample_gradients.h); DiskFull; IoError (a sample whose gradient is not finite,
// with its number).
CollectResult collect(const CollectTask& task, CollectRanks& ranks);

}  // namespace skein::gradient_features
