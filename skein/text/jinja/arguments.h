// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which arguments was a function, method, filter or test called with?

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "skein/text/jinja/value.h"

namespace skein::text::jinja {

class Arguments {
 public:
  // `what` is called, as messages say it; it must outlive this.
  Arguments(std::string_view what, std::vector<Value> values,
            std::vector<std::pair<std::string, Value>> named)
      : what_(what), values_(std::move(values)), named_(std::move(named)) {}

  // The next one by place, else the one of this name, if it is given at all.
  std::optional<Value> find(std::string_view name);
  // The same; an undefined value without.
  Value take(std::string_view name) { return find(name).value_or(Value()); }
  // Throws Failure unless it is a string (an integer).
  std::string string(std::string_view name);
  int64_t integer(std::string_view name, int64_t otherwise);

  bool empty() const { return at_ == values_.size() && named_.empty(); }
  // All that are left.
  std::vector<Value> rest();
  std::vector<std::pair<std::string, Value>> named() { return std::exchange(named_, {}); }
  // Throws Failure when some are left: the callee does not know them.
  void finish() const;
  std::string_view what() const { return what_; }

 private:
  [[noreturn]] void fail(std::string_view name, std::string_view expected, const Value& got) const;

  std::string_view what_;
  std::vector<Value> values_;
  std::vector<std::pair<std::string, Value>> named_;
  size_t at_ = 0;
};

}  // namespace skein::text::jinja
