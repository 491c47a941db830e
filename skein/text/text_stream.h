// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// When may bytes that come token by token be shown?
//
// A token may end inside a character, and a text may end with the first part of a stop string:
// both are held back until it is clear what they are.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skein::text {

class TextStream {
 public:
  // The text ends before the first of `stops` that appears in it. Empty strings are left out.
  explicit TextStream(std::span<const std::string> stops = {});

  // What can be shown now, whole characters. Nothing more once a stop string has appeared.
  std::string add(std::string_view bytes);
  // The rest; bytes that form no character become U+FFFD.
  std::string finish();

  bool is_stopped() const { return is_stopped_; }

 private:
  // How many bytes at the end could be the beginning of a stop string.
  size_t begun_stop() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace skein::text
