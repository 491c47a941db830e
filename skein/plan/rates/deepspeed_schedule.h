// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The learning rate of DeepSpeed's schedules: WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle,
// LRRangeTest.
//
// DeepSpeed moves its schedule after each update and begins one before 0: a warm-up's first two
// updates have the same rate. Where its versions differ, ds_compat decides.

#include <cstdint>

#include "skein/config/run_config.h"

namespace skein::plan {

bool is_deepspeed(config::Schedule type);

// Of the update `step`, from 0, of `total_steps`. `peak` is where a warm-up or a cycle goes to, and
// where LRRangeTest begins. Requires is_deepspeed().
double deepspeed_rate(const config::ScheduleConfig& schedule, double peak, int64_t step,
                      int64_t total_steps);

}  // namespace skein::plan
