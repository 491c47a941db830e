// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/ops/decode/device_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

namespace skein::ops {

struct DeviceGraph::Graph {
  at::cuda::CUDAGraph graph;
};

DeviceGraph::DeviceGraph() = default;
DeviceGraph::~DeviceGraph() = default;
DeviceGraph::DeviceGraph(DeviceGraph&&) noexcept = default;
DeviceGraph& DeviceGraph::operator=(DeviceGraph&&) noexcept = default;

namespace {

// The default stream cannot be recorded. One for all recordings: torch keeps a workspace for each
// stream that products have run on.
c10::cuda::CUDAStream recording_stream() {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const auto device = c10::cuda::current_device();
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool()).first->second;
}

// What was recorded of work that has failed is of no use, and may be invalid by itself.
void end_quietly(at::cuda::CUDAGraph& graph) noexcept {
  try {
    graph.capture_end();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the failure that came first is told
  }
}

}  // namespace

void DeviceGraph::record(const std::function<void()>& work, const DeviceGraph* other) {
  graph_.reset();
  auto made = std::make_unique<Graph>();
  c10::cuda::device_synchronize();
  {
    const c10::cuda::CUDAStreamGuard stream(recording_stream());
    const auto pool =
        other && other->is_recorded() ? other->graph_->graph.pool() : at::cuda::MempoolId_t{0, 0};
    // Savers and loaders use the device meanwhile, on threads of their own.
    made->graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_quietly(made->graph);
      throw;
    }
    made->graph.capture_end();
  }
  graph_ = std::move(made);
}

void DeviceGraph::replay() { graph_->graph.replay(); }

}  // namespace skein::ops
