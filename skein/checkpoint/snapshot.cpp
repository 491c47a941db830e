// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/snapshot.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <unordered_map>

#include "skein/checkpoint/folder.h"
#include "skein/core/error.h"
#include "skein/tensor/dtype.h"

namespace skein::checkpoint {
namespace {

using tensor::TensorSlice;

struct TargetPlace {
  uint64_t file;
  uint64_t offset;
  const PlacedTensor* tensor;
};

using Places = std::unordered_map<std::string, TargetPlace>;

void add_plan(Plan plan, Job& job) {
  for (auto& file : plan.files) job.files.push_back(std::move(file));
  if (!plan.index.empty()) job.texts[plan.index_name] = std::move(plan.index);
}

// Model and optimizer names may be alike, so each file set has places of its own.
Places find_places(const Job& job, size_t first, size_t last) {
  Places places;
  for (size_t i = first; i < last; ++i) {
    const auto& file = job.files[i];
    for (const auto& tensor : file.tensors) {
      places[tensor.name] = {i, file.header.size() + tensor.begin, &tensor};
    }
  }
  return places;
}

Piece place_piece(const TensorSlice& slice, const Places& places) {
  const auto found = places.find(slice.name);
  SKEIN_CHECK(found != places.end(), slice.name + " is not in the list of tensors");
  const auto& [file, offset, tensor] = found->second;
  const std::vector<uint64_t> shape(slice.shape.begin(), slice.shape.end());
  SKEIN_CHECK(shape == tensor->shape && tensor::dtype_of(slice.dtype) == tensor->dtype,
              slice.name + " differs from its entry in the list of tensors");
  SKEIN_CHECK(slice.begin >= 0 && slice.begin <= slice.end &&
                  static_cast<uint64_t>(slice.end) <= element_count(shape).value() &&
                  slice.data.numel() == slice.end - slice.begin,
              fmt::format("{}: elements [{}, {})", slice.name, slice.begin, slice.end));
  return {file, offset + static_cast<uint64_t>(slice.begin) * dtype_bytes(tensor->dtype), {}};
}

struct Copy {
  Piece piece;
  const TensorSlice* slice;
  int64_t bytes;
};

void add_copies(const std::vector<TensorSlice>& slices, const Places& places,
                std::vector<Copy>& copies) {
  for (const auto& slice : slices) {
    const auto bytes = (slice.end - slice.begin) *
                       static_cast<int64_t>(dtype_bytes(tensor::dtype_of(slice.dtype)));
    copies.push_back({place_piece(slice, places), &slice, bytes});
  }
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Job take_snapshot(const Contents& contents, uint64_t max_shard_bytes, at::Tensor& buffer) {
  const c10::NoGradGuard no_grad;
  Job job{.texts = contents.texts};
  for (const auto& [name, text] : job.texts) SKEIN_CHECK(is_plain_name(name), name);
  add_plan(plan_files("model", contents.model, max_shard_bytes), job);
  const size_t num_model_files = job.files.size();
  add_plan(plan_files("optimizer", contents.optimizer, max_shard_bytes), job);

  std::vector<Copy> copies;
  add_copies(contents.model_slices, find_places(job, 0, num_model_files), copies);
  add_copies(contents.optimizer_slices, find_places(job, num_model_files, job.files.size()),
             copies);

  int64_t total = 0;
  for (const auto& copy : copies) total += aligned(copy.bytes);
  if (!buffer.defined() || buffer.numel() < total) {
    buffer = at::Tensor();  // release before allocating
    buffer = at::empty({total}, at::TensorOptions(at::kByte));
  }
  auto* next = static_cast<std::byte*>(buffer.data_ptr());
  for (auto& [piece, slice, bytes] : copies) {
    at::from_blob(next, {slice->end - slice->begin}, at::TensorOptions(slice->dtype))
        .copy_(slice->data.flatten());
    piece.bytes = {next, static_cast<size_t>(bytes)};
    job.pieces.push_back(piece);
    next += aligned(bytes);
  }
  return job;
}

}  // namespace skein::checkpoint
