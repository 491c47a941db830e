// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Sizes and counts as people read them.

#include <cstdint>
#include <string>
#include <string_view>

namespace skein {

// "1.5 GiB".
std::string shown_bytes(uint64_t bytes);
// "124,439,808".
std::string shown_count(int64_t count);
// "0.07 %": two digits of what is small.
std::string shown_share(int64_t part, int64_t whole);
// "1 file", "2 files".
std::string counted(uint64_t count, std::string_view thing);

}  // namespace skein
