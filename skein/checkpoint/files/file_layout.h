// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which file holds which tensor, and where?
//
// A pure function of the list of tensors: every rank derives the same headers and offsets alone.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/checkpoint/files/safetensors.h"

namespace skein::checkpoint {

inline constexpr uint64_t kDefaultShardBytes = 50'000'000'000;  // Hugging Face's max_shard_size

struct FileLayout {
  std::string name;
  std::string header;  // the file's first bytes; the data section follows
  std::vector<PlacedTensor> tensors;
  uint64_t size = 0;
};

struct Layout {
  std::vector<FileLayout> files;
  std::string index_name;  // empty when there is one file
  std::string index;
};

// What the names of tensor files begin with. An adapter's is PEFT's, which reads one file alone.
inline constexpr const char* kModelStem = "model";
inline constexpr const char* kAdapterStem = "adapter_model";
inline constexpr const char* kOptimizerStem = "optimizer";

// `stem` is one of these. An adapter is never split. No tensors, no files. A tensor larger than
// `max_shard_bytes` gets a file of its own.
Layout lay_out_files(const std::string& stem, const std::vector<TensorEntry>& entries,
                     uint64_t max_shard_bytes = kDefaultShardBytes);

// Is this one of the names that lay_out_files(stem, …) can give?
bool is_layout_name(std::string_view name, std::string_view stem);
// The same for a model's or an adapter's.
bool is_weights_name(std::string_view name);

}  // namespace skein::checkpoint
