// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Long arrays of one rank on a local disk.
//
// A file is used in one of two ways at a time. As memory: its tensors are read or set like any
// other, to save, to restore, to fill. By transfers: pieces are read into and written from memory
// of the caller, and the tensors only say where they lie. The first transfer ends a use as memory;
// a tensor that is touched after it is a SIGSEGV.
//
// Transfers may come from several threads that live as long as the file. What one of them writes
// is read by another after wait().

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "skein/core/file.h"
#include "skein/core/medium.h"
#include "skein/optim/offload.h"
#include "skein/spill/spill_file.h"
#include "skein/tensor/shard_layout.h"

namespace skein::optim {

class DiskFile {
 public:
  // Room for arrays of these sizes, each of which begins with a block. Throws DiskFull, IoError.
  DiskFile(const DiskOptions& options, std::span<const int64_t> array_bytes);

  // The next of them. It lives as long as the file.
  at::Tensor take(int64_t numel, at::ScalarType dtype);

  // Until the next transfer. For kRead, what lies there is first compared with what was written;
  // for kCopy by compare(), which throws where a copy may hold something else, and does nothing
  // where nothing was copied.
  void use_as_memory(Access access);
  void compare();

  using Ticket = spill::SpillFile::Ticket;
  // Of elements of a tensor of this file that begin with a block, from or to the front of `memory`,
  // which holds whole blocks and is aligned.
  Ticket read(const at::Tensor& array, std::byte* memory);
  Ticket write(const at::Tensor& array, const std::byte* memory);
  void wait(Ticket ticket);

  int64_t block_bytes() const { return static_cast<int64_t>(file_.block_bytes()); }

 private:
  struct Place {
    uint64_t offset = 0, bytes = 0;
  };
  // Of whole blocks.
  Place place_of(const at::Tensor& array) const;

  std::mutex mutex_;
  spill::SpillFile file_;
  uint64_t taken_ = 0;
  Access access_ = Access::kRead;  // of `plain_`
  std::optional<spill::SpillFile::PlainAccess> plain_;
};

// Whole blocks of so many bytes.
constexpr int64_t whole_blocks(int64_t bytes, int64_t block_bytes) {
  return (bytes + block_bytes - 1) / block_bytes * block_bytes;
}

}  // namespace skein::optim
