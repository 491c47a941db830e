// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
// Built when CUDA is off: the kernels that this build does not have.

#include "skein/core/error.h"
#include "skein/ops/adamw_kernel.h"
#include "skein/ops/column_sum_kernel.h"
#include "skein/ops/cross_entropy_kernel.h"
#include "skein/ops/decode/device_graph.h"
#include "skein/ops/decode/paged_attention_kernel.h"
#include "skein/ops/decode/sampling_kernel.h"
#include "skein/ops/device.h"
#include "skein/ops/dropout_kernel.h"
#include "skein/ops/embedding_noise_kernel.h"
#include "skein/ops/layer_norm_kernel.h"
#include "skein/ops/nf4_kernel.h"
#include "skein/ops/normal_kernel.h"
#include "skein/ops/pinned_memory.h"
#include "skein/ops/rms_norm_kernel.h"
#include "skein/ops/rope_kernel.h"
#include "skein/ops/sign_projection_kernel.h"
#include "skein/ops/square_sum_kernel.h"
#include "skein/ops/swiglu_kernel.h"

namespace skein::ops {
namespace {

[[noreturn]] void refuse() {
  throw UserError("this build has no CUDA kernels: build with `make cuda`, or set device: cpu");
}

}  // namespace

void adamw_on_cuda(const AdamWCall&) { refuse(); }
void adamw_8bit_on_cuda(const AdamWCall&) { refuse(); }
void adamw_bfloat16_on_cuda(const AdamWCall&) { refuse(); }
void column_sum_on_cuda(const ColumnSumCall&) { refuse(); }
void part_sum_on_cuda(const PartSumCall&) { refuse(); }
void cross_entropy_on_cuda(const CrossEntropyCall&) { refuse(); }
void dropout_on_cuda(const DropoutCall&) { refuse(); }
void embedding_noise_on_cuda(const EmbeddingNoiseCall&) { refuse(); }
void layer_norm_on_cuda(const LayerNormForward&) { refuse(); }
void layer_norm_backward_on_cuda(const LayerNormBackward&) { refuse(); }
void dequantise_on_cuda(const DequantiseCall&) { refuse(); }
void normal_on_cuda(const NormalCall&) { refuse(); }
void paged_attention_on_cuda(const PagedAttentionCall&) { refuse(); }
void store_keys_on_cuda(const StoreKeysCall&) { refuse(); }
int paged_splits(const PagedPlace&) { refuse(); }
void rms_norm_on_cuda(const RmsNormForward&) { refuse(); }
void rms_norm_backward_on_cuda(const RmsNormBackward&) { refuse(); }
void rope_on_cuda(const RopeCall&) { refuse(); }
void sample_on_cuda(const SampleCall&) { refuse(); }
void add_sign_projection_on_cuda(const SignProjectionCall&) { refuse(); }
void fill_signs_on_cuda(const FillSignsCall&) { refuse(); }
SignProjectionScratch sign_projection_scratch(int64_t, int64_t, int64_t) { refuse(); }
void add_square_sum_on_cuda(const SquareSumCall&) { refuse(); }
void swiglu_on_cuda(const SwigluCall&) { refuse(); }
void swiglu_backward_on_cuda(const SwigluCall&) { refuse(); }
at::Tensor pinned_memory(int64_t) { refuse(); }
bool has_native_bfloat16(int) { refuse(); }
std::string device_name(int) { return {}; }
std::string pci_bus_id(int) { return {}; }
void synchronise(bool) {}
DeviceMemory device_memory(bool) { return {}; }
void begin_peak(bool) {}
int64_t free_device_memory() { refuse(); }

struct DeviceGraph::Graph {};

DeviceGraph::DeviceGraph() = default;
DeviceGraph::~DeviceGraph() = default;
DeviceGraph::DeviceGraph(DeviceGraph&&) noexcept = default;
DeviceGraph& DeviceGraph::operator=(DeviceGraph&&) noexcept = default;
void DeviceGraph::record(const std::function<void()>&, const DeviceGraph*) { refuse(); }
void DeviceGraph::replay() { refuse(); }

}  // namespace skein::ops
