// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Arrays on a disk pass through host memory, a window at a time: while one is worked on, the next
// is read and the one before is written.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "skein/optim/disk_file.h"
#include "skein/tensor/copy_stream.h"
#include "skein/tensor/flat_memory.h"

namespace skein::optim {

// One of several arrays that are worked on together, element by element.
struct PassingArray {
  at::Tensor data;      // an entry for every `block` elements
  int64_t block = 1;    // 1 or kStateBlock
  DiskFile* file = {};  // where `data` lies; null: in memory, where it stays
};

// Host memory that transfers may use, of so many bytes; it counts whole.
class AlignedBuffer {
 public:
  AlignedBuffer(tensor::FlatMemory& memory, int64_t bytes);
  std::byte* data() const { return data_; }
  // Its first bytes.
  at::Tensor tensor(int64_t bytes) const;

 private:
  tensor::FlatBuffer buffer_;
  std::byte* data_;
};

// Used by one thread at a time.
class DiskWindows {
 public:
  // `slot_bytes`: optim::disk_slot_bytes() of the widest window; `window`: its elements.
  DiskWindows(tensor::FlatMemory& memory, int64_t slot_bytes, int64_t window);
  DiskWindows(const DiskWindows&) = delete;
  DiskWindows& operator=(const DiskWindows&) = delete;
  ~DiskWindows();

  // Calls `change` for every window of `numel` elements with the entries of each array, in memory,
  // where it may change them. Writes may still be under way when this returns: settle().
  using Change = std::function<void(tensor::Range window, const std::vector<at::Tensor>& entries)>;
  void pass(const std::vector<PassingArray>& arrays, int64_t numel, const Change& change);

  // Waits for all writes. Throws what one of them has met.
  void settle();

 private:
  using Transfers = std::vector<std::pair<DiskFile*, DiskFile::Ticket>>;
  struct Slot {
    AlignedBuffer buffer;
    std::vector<at::Tensor> entries;  // of the window that it holds
    const void* arrays = nullptr;     // tells those of one range from another's
    Transfers transfers;              // of reads, then of writes
  };

  void start_reads(Slot& slot, const std::vector<PassingArray>& arrays, tensor::Range window);
  void start_writes(Slot& slot, const std::vector<PassingArray>& arrays, tensor::Range window);
  static void finish(Slot& slot);
  Slot& slot_of(size_t window) { return slots_[window % slots_.size()]; }

  const int64_t window_;
  std::vector<Slot> slots_;
};

// Reads arrays into the memory of a device, or a CPU's.
class DiskReader {
 public:
  // Pieces of `piece_bytes` at most, whole blocks.
  DiskReader(tensor::FlatMemory& memory, int64_t piece_bytes);

  // Returns when all was read; the copies are then made by `copies`, or already have been.
  void read(const at::Tensor& target, const at::Tensor& array, DiskFile& file,
            tensor::CopyStream& copies);

 private:
  struct Slot {
    AlignedBuffer buffer;
    tensor::Mark sent;
  };
  const int64_t piece_bytes_;
  std::vector<Slot> slots_;
};

}  // namespace skein::optim
