// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: small folders of tensors.

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/checkpoint/files/manifest.h"
#include "skein/checkpoint/files/model_files.h"
#include "skein/convert/float_values.h"
#include "skein/core/hash.h"
#include "skein/core/testing.h"

namespace skein::convert {

struct TestTensor {
  std::vector<uint64_t> shape;
  std::vector<float> values;
  DType dtype = DType::kF32;

  bool operator==(const TestTensor&) const = default;
};
using TestTensors = std::map<std::string, TestTensor>;

// One file STEM.safetensors.
inline void write_tensor_file(const fs::path& folder, const std::string& stem,
                              const TestTensors& tensors) {
  fs::create_directories(folder);
  std::vector<checkpoint::TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype, tensor.shape});
  const auto layout = checkpoint::lay_out_files(stem, entries);
  const auto& file = layout.files.at(0);
  std::string bytes(file.size, '\0');
  std::memcpy(bytes.data(), file.header.data(), file.header.size());
  for (const auto& place : file.tensors) {
    const auto all = std::as_writable_bytes(std::span(bytes));
    from_floats(tensors.at(place.name).values, place.dtype,
                all.subspan(file.header.size() + place.begin, place.end - place.begin));
  }
  write_file_atomically(folder / file.name, bytes);
}

// Of all files there.
inline void write_manifest(const fs::path& folder) {
  checkpoint::Manifest manifest;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto bytes = read_file(entry.path());
    manifest.files.push_back({entry.path().filename().string(),
                              bytes.size(),
                              {{0, bytes.size(), digest(std::as_bytes(std::span(bytes)))}}});
  }
  write_file_atomically(folder / checkpoint::kManifestName, checkpoint::manifest_text(manifest));
}

inline TestTensors read_tensor_files(const fs::path& folder) {
  const auto files = checkpoint::open_model_files(folder);
  TestTensors tensors;
  for (const auto& [name, stored] : files.tensors) {
    const auto& tensor = *stored.tensor;
    std::vector<std::byte> bytes(tensor.end - tensor.begin);
    stored.file->file.read_at(stored.file->header.data_begin + tensor.begin, bytes);
    auto& read = tensors[name];
    read = {.shape = tensor.shape, .values = {}, .dtype = tensor.dtype};
    read.values.resize(bytes.size() / dtype_bytes(tensor.dtype));
    to_floats(tensor.dtype, bytes, read.values);
  }
  return tensors;
}

}  // namespace skein::convert
