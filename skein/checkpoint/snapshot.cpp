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

// An index names files beside it: the folder is not in it.
void add_files(Layout layout, const std::string& folder, Job& job) {
  const auto name_of = [&](const std::string& name) {
    return folder.empty() ? name : folder + "/" + name;
  };
  for (auto& file : layout.files) {
    file.name = name_of(file.name);
    SKEIN_CHECK(is_file_name(file.name), file.name);
    job.files.push_back(std::move(file));
  }
  if (!layout.index.empty()) job.texts[name_of(layout.index_name)] = std::move(layout.index);
}

// Names of several sets may be alike, so each has places of its own: those of its files.
Places find_places(const Job& job, size_t first) {
  Places places;
  for (size_t i = first; i < job.files.size(); ++i) {
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

}  // namespace

Snapshot plan_snapshot(const Contents& contents, uint64_t max_shard_bytes) {
  const c10::NoGradGuard no_grad;
  Snapshot snapshot{.job = {.texts = contents.texts}};
  auto& job = snapshot.job;
  for (const auto& [name, text] : job.texts) SKEIN_CHECK(is_file_name(name), name);
  for (const auto& set : contents.sets) {
    const size_t first = job.files.size();
    add_files(lay_out_files(set.stem, set.tensors, max_shard_bytes), set.folder, job);
    const auto places = find_places(job, first);
    for (const auto& slice : set.slices) snapshot.sources.push_back(place_slice(slice, places));
  }
  return snapshot;
}

}  // namespace skein::checkpoint
