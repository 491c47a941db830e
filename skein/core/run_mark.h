// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <string_view>

namespace skein {

// The file whose presence says that a folder is a run's (docs/run_record.md).
inline constexpr std::string_view kRunMark = ".skein-run";

}  // namespace skein
