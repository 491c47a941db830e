// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How long will a step take, and how well do more GPUs pay? From the shapes, a GPU's data sheet and
// the links between, by the model of step_time.h.

#include <cstdint>
#include <vector>

#include "skein/core/dtype.h"
#include "skein/plan/families/architecture.h"
#include "skein/plan/fit.h"
#include "skein/plan/scaling/step_time.h"
#include "skein/report/gpu_table.h"

namespace skein::plan {

struct StepQuestion {
  Choice choice;       // alike on every rank, whatever their number
  int64_t tokens = 1;  // of a row
  DType dtype = DType::kBF16;
  int64_t gradient_bytes = 2;  // per element
  double state_bytes = 12;     // the same
  // Absent: ranks on CPUs, which share memory inside a node.
  const report::GpuModel* gpu = nullptr;
  double utilisation = 0;      // MFU
  double compute_seconds = 0;  // of an update on one rank as measured; 0: as the FLOPs say
  // Of them the optimizer's, which stages 1 to 3 divide by the ranks. 0: of a GPU what its memory
  // allows, else not told apart.
  double update_seconds = 0;
  double link_gbit = 100;  // of each node
  // Bytes per second as measured, and seconds of a short transfer. 0: by the data sheet, and
  // link_gbit.
  double inside_rate = 0, between_rate = 0;
  double latency = 0;
  double busy_per_byte = 0;  // Links::busy; 0: of ranks on CPUs what is usual
};

// Of a step on such a world. Without a GPU, compute_seconds is needed. What a rank computes counts
// as long as there; efficiency is against one rank.
StepTime predict_step(const Shapes& shapes, const Dimensions& dimensions,
                      const StepQuestion& question, const WorldShape& world);

struct ScalingRow {
  WorldShape world;
  double link_gbit = 0;  // 0: one node
  StepTime time;
};
// 2, 4 and 8 ranks of one node; two and four nodes of four at 10 and 100 Gbit/s.
std::vector<ScalingRow> predict_scaling(const Shapes& shapes, const Dimensions& dimensions,
                                        const StepQuestion& question);

}  // namespace skein::plan
