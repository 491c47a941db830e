// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/disk_windows.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "skein/core/error.h"

namespace skein::optim {
namespace {

static_assert(kDiskAlignment == spill::kAlignment);

std::byte* aligned(const at::Tensor& bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.mutable_data_ptr());
  const auto over = address % kDiskAlignment;
  return static_cast<std::byte*>(bytes.mutable_data_ptr()) +
         (over == 0 ? 0 : kDiskAlignment - over);
}

at::Tensor part_of(const PassingArray& array, tensor::Range window) {
  const auto entries = [&](int64_t elements) { return (elements + array.block - 1) / array.block; };
  return array.data.narrow(0, window.begin / array.block, entries(window.size()));
}

// Of an array's piece, in whole windows of `size`.
std::vector<tensor::Range> windows_of(int64_t numel, int64_t size) {
  std::vector<tensor::Range> list;
  for (int64_t begin = 0; begin < numel; begin += size) {
    list.push_back({begin, std::min(begin + size, numel)});
  }
  return list;
}

}  // namespace

AlignedBuffer::AlignedBuffer(tensor::FlatMemory& memory, int64_t bytes)
    : buffer_(memory.allocate(bytes + kDiskAlignment, at::kByte, Medium::kPinnedHost)),
      data_(aligned(buffer_.tensor())) {}

at::Tensor AlignedBuffer::tensor(int64_t bytes) const {
  const auto* front = static_cast<const std::byte*>(buffer_.tensor().const_data_ptr());
  return buffer_.tensor().narrow(0, data_ - front, bytes);
}

DiskWindows::DiskWindows(tensor::FlatMemory& memory, int64_t slot_bytes, int64_t window)
    : window_(window) {
  for (int64_t i = 0; i < kDiskSlots; ++i) {
    slots_.push_back({AlignedBuffer(memory, slot_bytes), {}, nullptr, {}});
  }
}

void DiskWindows::pass(const std::vector<PassingArray>& arrays, int64_t numel,
                       const Change& change) {
  const auto windows = windows_of(numel, window_);
  const void* key = arrays.front().data.const_data_ptr();
  for (auto& slot : slots_) {
    if (slot.arrays == key) finish(slot);  // what the last pass over them wrote
  }
  start_reads(slot_of(0), arrays, windows.front());
  for (size_t i = 0; i < windows.size(); ++i) {
    if (i + 1 < windows.size()) start_reads(slot_of(i + 1), arrays, windows[i + 1]);
    auto& slot = slot_of(i);
    finish(slot);
    change(windows[i], slot.entries);
    start_writes(slot, arrays, windows[i]);
  }
}

void DiskWindows::start_reads(Slot& slot, const std::vector<PassingArray>& arrays,
                              tensor::Range window) {
  finish(slot);  // its writes
  slot.entries.clear();
  slot.arrays = arrays.front().data.const_data_ptr();
  auto* memory = slot.buffer.data();
  for (const auto& array : arrays) {
    const auto part = part_of(array, window);
    if (array.file == nullptr) {
      slot.entries.push_back(part);
      continue;
    }
    slot.transfers.emplace_back(array.file, array.file->read(part, memory));
    slot.entries.push_back(at::from_blob(memory, part.sizes(), part.options()));
    memory += whole_blocks(static_cast<int64_t>(part.nbytes()), array.file->block_bytes());
  }
}

void DiskWindows::start_writes(Slot& slot, const std::vector<PassingArray>& arrays,
                               tensor::Range window) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].file == nullptr) continue;
    const auto* memory = static_cast<const std::byte*>(slot.entries[i].const_data_ptr());
    slot.transfers.emplace_back(arrays[i].file,
                                arrays[i].file->write(part_of(arrays[i], window), memory));
  }
}

// All of them, also where one has failed: the slot's memory is theirs until then.
void DiskWindows::finish(Slot& slot) {
  std::exception_ptr failure;
  for (const auto& [file, ticket] : std::exchange(slot.transfers, {})) {
    try {
      file->wait(ticket);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void DiskWindows::settle() {
  for (auto& slot : slots_) finish(slot);
}

DiskWindows::~DiskWindows() {
  for (auto& slot : slots_) {
    try {
      finish(slot);
    } catch (...) {  // nobody asks for these bytes any more
    }
  }
}

DiskReader::DiskReader(tensor::FlatMemory& memory, int64_t piece_bytes)
    : piece_bytes_(piece_bytes) {
  for (int64_t i = 0; i < kDiskSlots; ++i) {
    slots_.push_back({AlignedBuffer(memory, piece_bytes), {}});
  }
}

void DiskReader::read(const at::Tensor& target, const at::Tensor& array, DiskFile& file,
                      tensor::CopyStream& copies) {
  const auto pieces = windows_of(array.numel(), piece_bytes_ / array.element_size());
  const auto start = [&](size_t i) {
    auto& slot = slots_[i % slots_.size()];
    slot.sent.wait();
    return file.read(array.narrow(0, pieces[i].begin, pieces[i].size()), slot.buffer.data());
  };
  std::optional<DiskFile::Ticket> next = start(0);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto ticket = *next;
    if (i + 1 < pieces.size()) next = start(i + 1);
    file.wait(ticket);
    auto& slot = slots_[i % slots_.size()];
    const auto bytes = pieces[i].size() * array.element_size();
    copies.copy(target.narrow(0, pieces[i].begin, pieces[i].size()),
                slot.buffer.tensor(bytes).view(array.scalar_type()));
    slot.sent = copies.mark();
  }
}

}  // namespace skein::optim
