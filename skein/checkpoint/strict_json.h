// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// JSON from outside, without the freedoms of JSON.

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace skein::checkpoint {

// Refuses duplicate keys, more than 8 levels, zero bytes and whatever is not JSON, with an IoError
// that begins with `file`.
nlohmann::json parse_strict_json(std::string_view text, std::string_view file);

}  // namespace skein::checkpoint
