// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// profile_steps: some updates of a run are recorded. Every rank writes a trace of its own, the
// first one also says, and writes, where time and FLOPs went.
//
// The device is waited for where the recording begins and ends, and nowhere in between.

#include <cstdint>
#include <string>
#include <vector>

#include "skein/config/step_range.h"
#include "skein/data/loader.h"
#include "skein/report/profile_table.h"
#include "skein/trace/trace.h"
#include "skein/train/session.h"

namespace skein::train {

class StepTrace {
 public:
  // `run` must outlive it; `step`: updates that are finished. Warns where that is too late.
  StepTrace(Session& run, int64_t step);
  ~StepTrace();  // what is not finished is thrown away
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Call it before an update begins; `step`: updates that are finished.
  void before(int64_t step);
  // Call it when an update and what follows it (records, evaluation, save) is done.
  void after(int64_t step, const data::StepBatches& data);
  // The run ends; what was recorded is written.
  void finish();

 private:
  void write(const config::StepRange& done);
  void record(const std::string& name) const;
  report::Profile profile_of(const trace::Recording& recording,
                             const config::StepRange& done) const;

  Session& run_;
  config::StepRange range_;    // empty: nothing is to be recorded
  int64_t first_ = 0;          // update of the recording under way; 0: none is
  int64_t last_ = 0;           // update that is done
  double blocked_before_ = 0;  // seconds in communication, when the recording began
  trace::Point update_began_;
  std::vector<int64_t> lengths_, shared_;
};

}  // namespace skein::train
