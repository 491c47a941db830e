// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How fast is a training step, on one rank or on several? Synthetic tokens, fixed shapes, the real
// model, sharding and optimizer; the loop without its logs and checkpoints.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "skein/comm/group.h"
#include "skein/core/file.h"
#include "skein/optim/offload.h"
#include "skein/tensor/host_batch.h"

namespace skein::train {

struct BenchOptions {
  fs::path model;    // folder with config.json
  int64_t rows = 8;  // of each rank, as all that follows
  int64_t tokens = 1024;
  int64_t warmup_steps = 5;
  int64_t steps = 20;
  int stage = 0;
  bool recompute = false;
  bool offload_activations = false;  // with recompute
  int64_t accumulation = 1;          // micro-batches of rows x tokens in a step
  double max_grad_norm = 1;          // 0: no clipping
  optim::Offload offload{};
  optim::DiskOptions disk{};
  // Adapters of this rank on these modules, alpha twice the rank, everything else frozen; 0: all
  // trains.
  int64_t lora_rank = 0;
  std::vector<std::string> lora_targets{"q_proj", "k_proj", "v_proj", "o_proj"};
  bool four_bits = false;  // beside adapters: the weights, with double quantisation
  bool packed = false;     // packed_rows(), else rows of one document each
  double masked = 0;       // of packed rows: the share of a document's targets that is left out
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  fs::path trace;  // when given: two more steps under the profiler
};

struct BenchResult {
  std::vector<double> seconds;  // of each timed step
  double update_seconds = 0;    // of them the optimizer's, on average; of a GPU's rank unknown: 0
  double cpu_seconds = 0;       // of all threads of this process in a step, on average
  double first_loss = 0;
  double last_loss = 0;  // below the first, or the figure is of no use
  int64_t num_parameters = 0;
  int64_t num_trainable = 0;
  int64_t num_targets = 0;           // of a step, over all ranks
  double first_weights_seconds = 0;  // drawing them
  int64_t peak_flat_bytes = 0;
  int64_t peak_host_bytes = 0;    // of what is offloaded
  int64_t peak_device_bytes = 0;  // of the caching allocator; 0 on CPUs
  int64_t peak_stash_bytes = 0;   // of host memory for offloaded activations

  double median_seconds() const;
};

// `rows` x `tokens` as one run of documents of 256 to 2047 tokens, the last of a row cut short:
// always the same lengths and tokens. The first `masked` of each document's targets are left out.
tensor::HostBatch packed_rows(const BenchOptions& options, int64_t vocabulary);

// Collective; losses are those of all ranks, everything else is this one's.
BenchResult bench_training(const BenchOptions& options, comm::Group group = {});

}  // namespace skein::train
