// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/debug_tensors.h"

#include <span>
#include <utility>
#include <vector>

#include "skein/checkpoint/files/safetensors.h"
#include "skein/tensor/dtype.h"

namespace skein::cli {

void write_tensors(const fs::path& path, const NamedTensors& tensors) {
  std::vector<checkpoint::TensorEntry> entries;
  for (const auto& [name, value] : tensors) {
    const auto sizes = value.sizes();
    entries.push_back({name, tensor::dtype_of(value.scalar_type()), {sizes.begin(), sizes.end()}});
  }
  std::vector<checkpoint::PlacedTensor> placed;
  const auto header = checkpoint::build_header(std::move(entries), placed);
  const auto file = File::overwrite(path);
  file.write_at(0, std::as_bytes(std::span(header)));
  for (const auto& entry : placed) {
    const auto tensor = tensors.at(entry.name).contiguous();
    file.write_at(header.size() + entry.begin,
                  {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
}

}  // namespace skein::cli
