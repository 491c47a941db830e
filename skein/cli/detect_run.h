// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// On which machine, with which ranks and on which devices would a run start? What `skein plan` and
// `skein train` ask first.

#include "skein/config/run_config.h"
#include "skein/launch/placement/detect.h"
#include "skein/plan/fit.h"
#include "skein/plan/rules.h"

namespace skein::cli {

struct DetectedRun {
  launch::Hardware hardware;
  launch::LaunchPlan launch;

  plan::Place place() const;
  plan::Machine machine() const;  // with the memory of this one
};

DetectedRun detect_run(launch::LaunchFlags flags, const launch::Environment& environment,
                       const config::ParallelConfig& parallel);

}  // namespace skein::cli
