// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The patterns of an adapter_config.json: Python regular expressions over the names of modules.
//
// The files are written for Python's `re`. What has the same meaning to PCRE2 is taken:
//
//   literals, . ^ $ | [classes] and ranges, (groups), (?: ) (?= ) (?! ) (?<= ) (?<! ) (?P<name> )
//   * + ? {n} {n,} {n,m}, lazy; \d \w \s \b and their capitals, \A, escaped punctuation
//
// Everything else (back references, flags, {,n}, [[:x:]], …) is refused by name. A pattern may be
// hostile: a match that takes more than kMatchLimit steps is refused too.

#include <memory>
#include <string>
#include <string_view>

namespace skein::adapter {

class ModulePattern {
 public:
  enum class Reach {
    kWhole,   // re.fullmatch(pattern, name)
    kEnding,  // re.match(rf"(.*\.)?(pattern)$", name): all of it, or what follows a dot
  };

  // Throws UserError that quotes the pattern and what is wrong with it.
  ModulePattern(std::string_view pattern, Reach reach);
  ModulePattern(ModulePattern&&) noexcept;
  ModulePattern& operator=(ModulePattern&&) noexcept;
  ~ModulePattern();

  // Throws UserError when it takes too many steps.
  bool matches(std::string_view name) const;

  static constexpr unsigned kMatchLimit = 100'000;
  static constexpr size_t kMaxBytes = 65536;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace skein::adapter
