// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Work of a GPU that is recorded once and then begun with a single call.
//
// What is recorded reads and writes the same memory every time: tensors that it makes keep theirs
// until the graph goes. It may not wait for the device. Recording does none of the work.

#include <functional>
#include <memory>

namespace skein::ops {

class DeviceGraph {
 public:
  DeviceGraph();
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&&) noexcept;
  DeviceGraph& operator=(DeviceGraph&&) noexcept;

  // Memory that no other recording needs at the same time is shared with `other`. GPU builds alone.
  void record(const std::function<void()>& work, const DeviceGraph* other = nullptr);
  bool is_recorded() const { return graph_ != nullptr; }
  // On the current stream.
  void replay();

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace skein::ops
