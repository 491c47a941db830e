// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: what tensors take from the host's memory.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace skein::tensor {

// Counts what this thread allocates and frees while it lives.
class AllocationMeter {
 public:
  AllocationMeter() : counts_(std::make_shared<Counts>()), guard_(kKind, counts_) {}

  int64_t live_bytes() const { return counts_->live; }  // now, above those of the beginning
  int64_t peak_bytes() const { return counts_->peak; }
  int64_t largest_bytes() const { return counts_->largest; }  // of one allocation

 private:
  static constexpr auto kKind = c10::DebugInfoKind::PROFILER_STATE;

  struct Counts final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      live += bytes;
      peak = std::max(peak, live);
      largest = std::max(largest, bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }

    int64_t live = 0, peak = 0, largest = 0;
  };

  std::shared_ptr<Counts> counts_;
  c10::DebugInfoGuard guard_;
};

}  // namespace skein::tensor
