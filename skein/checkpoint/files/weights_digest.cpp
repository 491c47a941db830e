// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/weights_digest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

#include "skein/core/hash.h"
#include "skein/core/system_failure.h"

namespace skein::checkpoint {
namespace {

constexpr uint64_t kSample = 4096;

std::string sample_of(const StoredTensor& stored) {
  const auto& [file, tensor] = stored;
  const uint64_t size = tensor->end - tensor->begin, count = std::min(size, kSample);
  std::string bytes(3 * count, '\0');
  const uint64_t starts[] = {0, (size - count) / 2, size - count};
  for (size_t i = 0; i < 3; ++i) {
    try_again([&] {
      file->file.read_at(file->header.data_begin + tensor->begin + starts[i],
                         std::as_writable_bytes(std::span(bytes).subspan(i * count, count)));
    });
  }
  return bytes;
}

}  // namespace

std::string weights_digest(const ModelFiles& files) {
  const std::map<std::string, StoredTensor> by_name(files.tensors.begin(), files.tensors.end());
  std::string text;
  for (const auto& [name, stored] : by_name) {
    text += fmt::format("{} {} [{}] {}\n", name, dtype_word(stored.tensor->dtype),
                        fmt::join(stored.tensor->shape, ","), digest(sample_of(stored)));
  }
  return digest(text);
}

}  // namespace skein::checkpoint
