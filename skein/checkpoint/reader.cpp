// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/reader.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "skein/checkpoint/snapshot.h"
#include "skein/core/system_failure.h"
#include "skein/tensor/dtype.h"

namespace skein::checkpoint {
namespace {

using tensor::TensorSlice;

constexpr int64_t kChunkElements = int64_t{4} << 20;
constexpr std::array<std::string_view, 2> kBasePrefixes = {"transformer.", "model."};

// The stored tensor that `name` means: itself, or with the base prefix added or removed.
const StoredTensor* find_tensor(const ModelFiles& files, const std::string& name, bool foreign) {
  const auto get = [&](const std::string& key) -> const StoredTensor* {
    const auto found = files.tensors.find(key);
    return found == files.tensors.end() ? nullptr : &found->second;
  };
  if (const auto* exact = get(name); exact != nullptr || !foreign) return exact;
  for (const auto prefix : kBasePrefixes) {
    if (const auto* longer = get(std::string(prefix) + name)) return longer;
    if (!name.starts_with(prefix)) continue;
    if (const auto* shorter = get(name.substr(prefix.size()))) return shorter;
  }
  return nullptr;
}

bool may_be_passed_over(const std::string& name, const LoadOptions& options) {
  if (options.tied_head && name == "lm_head.weight") return true;
  return options.foreign && (name.ends_with("attn.bias") || name.ends_with("attn.masked_bias"));
}

struct Differences {
  std::vector<std::string> missing, unexpected, wrong_shape;
};

std::string shape_text(const auto& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string list_text(std::string_view title, std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const size_t shown = std::min<size_t>(names.size(), 10);
  const auto more = names.size() > shown ? fmt::format(", and {} more", names.size() - shown) : "";
  return fmt::format("\n  {} ({}): {}{}", title, names.size(),
                     fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                     more);
}

Differences compare(const ModelFiles& files, std::span<const TensorSlice> slices,
                    const LoadOptions& options) {
  Differences found;
  std::unordered_set<const PlacedTensor*> used;
  const auto want = [&](const std::string& name, const auto& shape) {
    const auto* stored = find_tensor(files, name, options.foreign);
    if (stored == nullptr) {
      found.missing.push_back(name);
      return;
    }
    used.insert(stored->tensor);
    if (std::equal(shape.begin(), shape.end(), stored->tensor->shape.begin(),
                   stored->tensor->shape.end(), std::equal_to<uint64_t>())) {
      return;
    }
    found.wrong_shape.push_back(fmt::format("{} is {}, not {}", name,
                                            shape_text(stored->tensor->shape), shape_text(shape)));
  };
  for (const auto& tensor : options.tensors) want(tensor.name, tensor.shape);
  for (const auto& slice : slices) want(slice.name, slice.shape);
  for (const auto& [name, stored] : files.tensors) {
    if (!used.contains(stored.tensor) && !may_be_passed_over(name, options)) {
      found.unexpected.push_back(name);
    }
  }
  return found;
}

void require_equal(const ModelFiles& files, Differences found) {
  const auto text = list_text("missing in the files", found.missing) +
                    list_text("not part of the model", found.unexpected) +
                    list_text("of another shape", found.wrong_shape);
  if (!text.empty()) {
    throw UserError(
        fmt::format("the tensors in {} are not those of this model; check config.json:{}",
                    files.folder.string(), text));
  }
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
    if (!direct) data.narrow(0, done, count).copy_(target);
    done += count;
  }
}

}  // namespace

Reader::Reader(const fs::path& folder, const std::string& stem)
    : files_(open_model_files(folder, stem)) {}

void Reader::load(std::span<TensorSlice> slices, const LoadOptions& options) const {
  const c10::NoGradGuard no_grad;
  require_equal(files_, compare(files_, slices, options));
  for (auto& slice : slices) {
    SKEIN_CHECK(slice.data.dim() == 1 && slice.data.numel() == slice.end - slice.begin, slice.name);
    read_slice(*find_tensor(files_, slice.name, options.foreign), slice);
  }
}

void read_checkpoint(const fs::path& folder, const CheckpointSlices& wanted) {
  Reader(folder, "model").load(wanted.model, {.tensors = wanted.model_tensors, .foreign = false});
  if (wanted.optimizer.empty() && wanted.optimizer_tensors.empty()) return;
  Reader(folder, "optimizer")
      .load(wanted.optimizer, {.tensors = wanted.optimizer_tensors, .foreign = false});
}

}  // namespace skein::checkpoint
