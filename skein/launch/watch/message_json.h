// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// JSON of messages between processes, which hold whole numbers only: the library would convert a
// float that fits no integer without a word, to no defined value.

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace skein::launch {

// Throws a std::exception for anything else.
inline nlohmann::json parse_message(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(text, [](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::value && value.is_number_float()) {
      throw std::invalid_argument("a number that is not whole");
    }
    return true;
  });
}

}  // namespace skein::launch
