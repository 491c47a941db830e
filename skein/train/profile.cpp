// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/profile.h"

#include <torch/csrc/autograd/profiler_kineto.h>

namespace skein::train {

namespace profiler = torch::autograd::profiler;

void profile(const fs::path& trace, bool cuda, const std::function<void()>& body) {
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  if (cuda) activities.insert(profiler::ActivityType::CUDA);
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  body();
  profiler::disableProfiler()->save(trace.string());
}

}  // namespace skein::train
