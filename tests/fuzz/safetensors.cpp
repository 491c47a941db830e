// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The first eight bytes are the length of the data section, the rest is the header's text. The same
// bytes are also read as a whole file, where the length field is the header's.
#include "skein/checkpoint/files/safetensors.h"

#include <sys/mman.h>

#include <cstring>

#include "skein/core/error.h"
#include "tests/fuzz/targets.h"

namespace skein::fuzz {
namespace {

void check_accepted(const checkpoint::Header& header, uint64_t data_bytes) {
  uint64_t position = 0;
  for (const auto& tensor : header.tensors) {
    require(tensor.begin == position && tensor.end >= tensor.begin, "tensors tile the data");
    require(checkpoint::byte_count(tensor.shape, tensor.dtype) == tensor.end - tensor.begin,
            "a tensor has the bytes of its shape");
    position = tensor.end;
  }
  require(position == data_bytes, "tensors cover the data");
}

}  // namespace

void safetensors(std::string_view bytes) {
  static const File file(memfd_create("fuzz", MFD_CLOEXEC));
  uint64_t data_bytes = 0;
  if (bytes.size() < sizeof data_bytes) return;
  std::memcpy(&data_bytes, bytes.data(), sizeof data_bytes);
  try {
    check_accepted(checkpoint::parse_header(bytes.substr(8), data_bytes, "f"), data_bytes);
  } catch (const IoError&) {
  }
  try {
    file.resize(bytes.size());
    file.write_at(0, std::as_bytes(std::span(bytes)));
    const auto header = checkpoint::read_header(file, "f");
    check_accepted(header, bytes.size() - header.data_begin);
  } catch (const IoError&) {
  }
}

}  // namespace skein::fuzz
