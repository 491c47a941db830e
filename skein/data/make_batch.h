// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How do samples become a micro-batch?
//
// Without any, one token that predicts nothing: weight zero. A sample's document is
// `first_document` + its number.

#include <cstdint>
#include <span>

#include "skein/data/sample_source.h"
#include "skein/tensor/host_batch.h"

namespace skein::data {

// A row each, padded to the longest.
tensor::HostBatch make_rows(const SampleSource& source, std::span<const int64_t> samples,
                            int64_t first_document);
// Behind each other, as a run of documents.
tensor::HostBatch make_run(const SampleSource& source, std::span<const int64_t> samples,
                           int64_t first_document);

}  // namespace skein::data
