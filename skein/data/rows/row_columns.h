// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which columns does a row have? One JSON object, in the order in which it was written.
//
// Safe on hostile bytes: a tree is built of the known columns alone, and of at most so many values;
// no object may name a key twice. Messages give the reason alone, since only the caller knows the
// file and the row, and show only short names of plain letters.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace skein::data {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxRowBytes = size_t{64} << 20;  // of JSON text
constexpr size_t kMaxRowValues = size_t{1} << 20;

class RowColumns {
 public:
  // Of one object. Throws IoError.
  explicit RowColumns(std::string_view row);

  // Null when the column is absent or null.
  const OrderedJson* find(std::string_view name) const;
  // Whether it is one of the first few, which names() shows; the value may be anything.
  bool has(std::string_view name) const;
  // `"a", "b", …`, for messages; "no column" without any.
  std::string names() const;

 private:
  OrderedJson known_;
  std::vector<std::string> names_;  // the first few of all
};

// Appends a member of a new name. The library's own insertion looks through all names for each.
OrderedJson& add_member(OrderedJson& object, std::string name, OrderedJson value);

// Any JSON text; throws IoError.
OrderedJson parse_ordered(std::string_view text);

// In quotes, as a message may show a name that came from outside.
std::string shown_name(std::string_view name);

}  // namespace skein::data
