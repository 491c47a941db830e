// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/reader.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "skein/checkpoint/snapshot.h"
#include "skein/core/system_failure.h"
#include "skein/tensor/dtype.h"

namespace skein::checkpoint {
namespace {

using tensor::TensorSlice;

constexpr int64_t kChunkElements = int64_t{4} << 20;

// A wide file may hold what float16 cannot; as an infinity it would ruin the model without a word.
void require_finite_half(const at::Tensor& half, const StoredTensor& stored,
                         const std::string& name) {
  if (!half.isinf().any().item<bool>()) return;
  throw UserError(
      fmt::format("{}: '{}' holds values beyond 65,504, where float16 ends: they would become "
                  "infinite. Use bf16=true or dtype=float32",
                  stored.file->name, name));
}

void read_slice(const StoredTensor& stored, TensorSlice& slice) {
  const auto type = tensor::scalar_type_of(stored.tensor->dtype);
  const auto& data = slice.data;
  if (type != data.scalar_type() &&
      !(c10::isFloatingType(type) && c10::isFloatingType(data.scalar_type()))) {
    throw UserError(fmt::format("{}: '{}' is {} and cannot be read as {}", stored.file->name,
                                slice.name, c10::toString(type),
                                c10::toString(data.scalar_type())));
  }
  const auto width = static_cast<int64_t>(dtype_bytes(stored.tensor->dtype));
  const uint64_t start = stored.file->header.data_begin + stored.tensor->begin;
  const bool direct = type == data.scalar_type() && data.is_cpu() && data.is_contiguous();
  at::Tensor chunk;
  for (int64_t done = 0; done < data.numel();) {
    const int64_t count = direct ? data.numel() : std::min(kChunkElements, data.numel() - done);
    if (!direct && !chunk.defined()) chunk = at::empty({count}, at::TensorOptions(type));
    const auto target = direct ? data : chunk.narrow(0, 0, count);
    try_again([&] {
      stored.file->file.read_at(
          start + static_cast<uint64_t>((slice.begin + done) * width),
          {static_cast<std::byte*>(target.data_ptr()), static_cast<size_t>(count * width)});
    });
    if (!direct) {
      const auto part = data.narrow(0, done, count);
      part.copy_(target);
      if (part.scalar_type() == at::kHalf) require_finite_half(part, stored, slice.name);
    }
    done += count;
  }
}

}  // namespace

Reader::Reader(const fs::path& folder, const std::string& stem)
    : files_(open_model_files(folder, stem)) {}

void Reader::load(std::span<TensorSlice> slices, const LoadOptions& options) const {
  const c10::NoGradGuard no_grad;
  auto all = options;
  for (const auto& slice : slices) {
    all.tensors.push_back({.name = slice.name, .shape = {slice.shape.begin(), slice.shape.end()}});
  }
  require_match(files_, all);
  for (auto& slice : slices) {
    SKEIN_CHECK(slice.data.dim() == 1 && slice.data.numel() == slice.end - slice.begin, slice.name);
    read_slice(*find_tensor(files_, slice.name, options.foreign), slice);
  }
}

void Reader::read(TensorSlice slice, bool foreign) const {
  const c10::NoGradGuard no_grad;
  read_slice(*find_tensor(files_, slice.name, foreign), slice);
}

void read_checkpoint(const fs::path& folder, const std::vector<FileSet>& sets) {
  for (const auto& set : sets) {
    auto slices = set.slices;  // their tensors are the caller's
    Reader(folder / set.folder, set.stem).load(slices, {.tensors = set.tensors, .foreign = false});
  }
}

}  // namespace skein::checkpoint
