// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/make_batch.h"

#include <algorithm>
#include <vector>

#include "skein/core/error.h"

namespace skein::data {

tensor::HostBatch make_rows(const SampleSource& source, std::span<const int64_t> samples,
                            int64_t first_document) {
  int64_t longest = 1;
  for (const int64_t sample : samples) longest = std::max(longest, source.length(sample));

  const auto rows = std::max<size_t>(1, samples.size());
  const auto width = static_cast<size_t>(longest);
  tensor::HostBatch batch{.rows = static_cast<int64_t>(rows),
                          .length = longest,
                          .tokens = std::vector<int64_t>(rows * width, 0),
                          .targets = std::vector<int64_t>(rows * width, tensor::kIgnore),
                          .documents = std::vector<int64_t>(rows, 0)};
  for (size_t row = 0; row < samples.size(); ++row) {
    const auto length = static_cast<size_t>(source.length(samples[row]));
    source.read(samples[row], std::span(batch.tokens).subspan(row * width, length),
                std::span(batch.targets).subspan(row * width, length));
    batch.documents[row] = first_document + samples[row];
    batch.num_targets += source.num_targets(samples[row]);
    batch.row_lengths.push_back(source.length(samples[row]));
  }
  const auto is_full = [&](int64_t length) { return length == longest; };
  if (std::ranges::all_of(batch.row_lengths, is_full)) batch.row_lengths.clear();
  return batch;
}

tensor::HostBatch make_run(const SampleSource& source, std::span<const int64_t> samples,
                           int64_t first_document) {
  int64_t length = 0;
  for (const int64_t sample : samples) length += source.length(sample);
  SKEIN_CHECK(length <= INT32_MAX, "a micro-batch has fewer tokens than that");
  const auto room = static_cast<size_t>(std::max<int64_t>(length, 1));
  tensor::HostBatch batch{.rows = 1,
                          .length = std::max<int64_t>(length, 1),
                          .tokens = std::vector<int64_t>(room, 0),
                          .targets = std::vector<int64_t>(room, tensor::kIgnore),
                          .documents = {},
                          .document_ends = {}};
  size_t at = 0;
  for (const int64_t sample : samples) {
    const auto own = static_cast<size_t>(source.length(sample));
    source.read(sample, std::span(batch.tokens).subspan(at, own),
                std::span(batch.targets).subspan(at, own));
    at += own;
    batch.document_ends.push_back(static_cast<int32_t>(at));
    batch.documents.push_back(first_document + sample);
    batch.num_targets += source.num_targets(sample);
  }
  if (samples.empty()) {
    batch.document_ends = {1};
    batch.documents = {0};
  }
  return batch;
}

}  // namespace skein::data
