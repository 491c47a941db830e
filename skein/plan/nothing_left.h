// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a start say that finds its run done?

#include <cstdint>
#include <optional>
#include <string>

namespace skein::plan {

// `early`: why the run ended before its last step (trainer_state.h), if it did; then with what to
// change for it to go on.
std::string nothing_left_text(int64_t step, int64_t total_steps,
                              const std::optional<std::string>& early);

}  // namespace skein::plan
