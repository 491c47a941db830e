// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What a component's field list says about one key besides its name and its member.

#include <limits>
#include <string_view>
#include <vector>

namespace skein::config {

struct About {
  std::string_view help;
  std::vector<std::string_view> aliases = {};  // other spellings; dots where they are nested
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_is_allowed = true, max_is_allowed = true;
  std::vector<std::string_view> choices = {};    // of text and lists; empty: any
  std::vector<std::string_view> not_built = {};  // choices elsewhere that this version cannot do
  bool takes_list = false;                       // text: a list is its items with commas between
  bool is_verbatim = false;                      // lists: any words, as they are written
  bool is_command = false;                       // lists: a program and its arguments
  bool is_percentage = false;                    // `5` and `5%` are both 5
  bool is_path = false;                          // `~` and variables are expanded
  // A word beside the values of its type, with a rule of its own (implied_settings.h).
  std::string_view also = {};
  // False for what belongs to one start rather than to the run: not written by to_yaml().
  bool saved = true;
};

}  // namespace skein::config
