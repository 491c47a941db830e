// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/batch.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::tensor {
namespace {

// Through pinned memory: a copy from pageable memory would wait for the GPU's work before it.
at::Tensor moved(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device || !device.is_cuda()) return tensor.to(device);
  return tensor.pin_memory().to(device, tensor.scalar_type(), /*non_blocking=*/true);
}

// A copy also on the CPU: the values belong to the host batch.
template <typename T>
at::Tensor copied(const std::vector<T>& values, at::IntArrayRef shape, at::Device device) {
  auto* first = const_cast<T*>(values.data());  // NOLINT: only read
  const auto view = at::from_blob(first, shape, c10::CppTypeToScalarType<T>::value);
  return device.is_cuda() ? moved(view, device) : view.clone();
}

template <typename T>
at::Tensor copied(const std::vector<T>& values, at::Device device) {
  return copied(values, {static_cast<int64_t>(values.size())}, device);
}

void check_ends(const HostBatch& batch) {
  SKEIN_CHECK(batch.rows == 1, "a run of documents is one row");
  SKEIN_CHECK(batch.documents.size() == batch.document_ends.size(), "one key for each document");
  SKEIN_CHECK(batch.document_ends.back() == batch.length, "the last document ends the row");
}

std::shared_ptr<const DocumentRun> make_run(const HostBatch& batch, at::Device device) {
  if (batch.document_ends.empty()) return nullptr;
  check_ends(batch);
  DocumentRun run{.ends = batch.document_ends};
  std::vector<int32_t> bounds{0};
  std::vector<int64_t> positions, documents, places;
  for (size_t i = 0; i < run.ends.size(); ++i) {
    const int64_t length = run.ends[i] - bounds.back();
    SKEIN_CHECK(length > 0, "a document has a token at least");
    run.longest = std::max(run.longest, length);
    for (int64_t t = 0; t < length; ++t) positions.push_back(t);
    documents.resize(positions.size(), batch.documents[i]);
    bounds.push_back(run.ends[i]);
  }
  for (size_t t = 0; t < batch.targets.size(); ++t) {
    if (batch.targets[t] != kIgnore) places.push_back(static_cast<int64_t>(t));
  }
  run.bounds = copied(bounds, device);
  run.positions = copied(positions, device);
  run.documents = copied(documents, device);
  run.places = copied(places, device);
  return std::make_shared<const DocumentRun>(std::move(run));
}

std::shared_ptr<const DocumentRun> moved(const std::shared_ptr<const DocumentRun>& run,
                                         at::Device device) {
  if (!run) return nullptr;
  auto copy = *run;
  for (auto* tensor : {&copy.bounds, &copy.positions, &copy.documents, &copy.places}) {
    *tensor = moved(*tensor, device);
  }
  return std::make_shared<const DocumentRun>(std::move(copy));
}

}  // namespace

Batch to_device(const Batch& batch, at::Device device) {
  return {moved(batch.tokens, device),
          moved(batch.targets, device),
          moved(batch.documents, device),
          batch.num_targets,
          moved(batch.run, device),
          batch.row_lengths.defined() ? moved(batch.row_lengths, device) : at::Tensor()};
}

Batch to_device(const HostBatch& batch, at::Device device) {
  return {copied(batch.tokens, {batch.rows, batch.length}, device),
          copied(batch.targets, {batch.rows, batch.length}, device),
          copied(batch.documents, device),
          batch.num_targets,
          make_run(batch, device),
          batch.row_lengths.empty() ? at::Tensor() : copied(batch.row_lengths, device)};
}

}  // namespace skein::tensor
