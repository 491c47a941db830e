// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/snapshot.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <unordered_map>

#include "skein/core/error.h"
#include "skein/core/folder.h"
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

void add_files(Layout layout, Job& job) {
  for (auto& file : layout.files) job.files.push_back(std::move(file));
  if (!layout.index.empty()) job.texts[layout.index_name] = std::move(layout.index);
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

Source place_slice(const TensorSlice& slice, const Places& places) {
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
  return {slice.data.flatten().to(slice.dtype), file,
          offset + static_cast<uint64_t>(slice.begin) * dtype_bytes(tensor->dtype)};
}

void add_sources(const std::vector<TensorSlice>& slices, const Places& places,
                 std::vector<Source>& sources) {
  for (const auto& slice : slices) sources.push_back(place_slice(slice, places));
}

}  // namespace

Snapshot plan_snapshot(const Contents& contents, uint64_t max_shard_bytes) {
  const c10::NoGradGuard no_grad;
  Snapshot snapshot{.job = {.texts = contents.texts}};
  auto& job = snapshot.job;
  for (const auto& [name, text] : job.texts) SKEIN_CHECK(is_file_name(name), name);
  add_files(lay_out_files(contents.stem, contents.model, max_shard_bytes), job);
  const size_t num_model_files = job.files.size();
  add_files(lay_out_files(kOptimizerStem, contents.optimizer, max_shard_bytes), job);
  add_sources(contents.model_slices, find_places(job, 0, num_model_files), snapshot.sources);
  add_sources(contents.optimizer_slices, find_places(job, num_model_files, job.files.size()),
              snapshot.sources);
  return snapshot;
}

}  // namespace skein::checkpoint
