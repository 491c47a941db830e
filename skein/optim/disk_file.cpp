// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/optim/disk_file.h"

#include <ATen/ops/from_blob.h>

#include "skein/core/error.h"

namespace skein::optim {
namespace {

uint64_t sum_of_blocks(std::span<const int64_t> array_bytes, int64_t block_bytes) {
  int64_t sum = 0;
  for (const int64_t bytes : array_bytes) sum += whole_blocks(bytes, block_bytes);
  return static_cast<uint64_t>(sum);
}

spill::SpillOptions spill_options(const DiskOptions& options) {
  spill::SpillOptions spill{.block_bytes = static_cast<uint64_t>(options.block_bytes),
                            .request_bytes = static_cast<uint64_t>(options.request_bytes),
                            .threads = static_cast<unsigned>(options.threads)};
  if (options.depth > 0) spill.depth = static_cast<unsigned>(options.depth);
  return spill;
}

}  // namespace

DiskFile::DiskFile(const DiskOptions& options, std::span<const int64_t> array_bytes)
    : file_(options.folder, sum_of_blocks(array_bytes, options.block_bytes),
            spill_options(options)) {}

at::Tensor DiskFile::take(int64_t numel, at::ScalarType dtype) {
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  const auto end = taken_ + static_cast<uint64_t>(whole_blocks(bytes, block_bytes()));
  SKEIN_CHECK(end <= file_.size(), "an array that its file has no room for");
  auto* memory = file_.memory().data() + taken_;
  taken_ = end;
  return at::from_blob(memory, {numel}, at::TensorOptions(at::kCPU).dtype(dtype));
}

void DiskFile::use_as_memory(Access access) {
  const std::lock_guard lock(mutex_);
  if (plain_ && (access_ == access || (access_ == Access::kSet && access == Access::kRead))) return;
  plain_.reset();
  const bool sets = access == Access::kSet;
  plain_.emplace(file_, sets ? spill::SpillFile::Use::kWrite : spill::SpillFile::Use::kRead);
  access_ = access;
  if (access == Access::kRead) plain_->verify();
}

void DiskFile::compare() {
  const std::lock_guard lock(mutex_);
  if (plain_ && access_ == Access::kCopy) plain_->verify();
}

DiskFile::Place DiskFile::place_of(const at::Tensor& array) const {
  const auto* begin = static_cast<const std::byte*>(array.const_data_ptr());
  const auto bytes = whole_blocks(static_cast<int64_t>(array.nbytes()), block_bytes());
  return {static_cast<uint64_t>(begin - file_.memory().data()), static_cast<uint64_t>(bytes)};
}

DiskFile::Ticket DiskFile::read(const at::Tensor& array, std::byte* memory) {
  const std::lock_guard lock(mutex_);
  plain_.reset();
  const auto [offset, bytes] = place_of(array);
  return file_.read(offset, {memory, bytes});
}

DiskFile::Ticket DiskFile::write(const at::Tensor& array, const std::byte* memory) {
  const std::lock_guard lock(mutex_);
  plain_.reset();
  const auto [offset, bytes] = place_of(array);
  return file_.write(offset, {memory, bytes});
}

void DiskFile::wait(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  file_.wait(ticket);
}

}  // namespace skein::optim
