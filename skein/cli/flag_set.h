// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The flags of a command, declared with what they fill, then read.
//
//   FlagSet flags("skein eval");
//   flags.add("batch-size", options.batch, /*least=*/1);
//   const auto words = flags.read(arguments);  // what belongs to no flag
//
// A word is `--flag value` or `--flag=value`, with dashes or underscores, or, as messages spell the
// keys of a configuration, `flag=value`. Throws UserError naming the flag, with suggestions for one
// that the command does not have.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/config/syntax/values.h"

namespace skein::cli {

class FlagSet {
 public:
  // As users type it: "skein eval".
  explicit FlagSet(std::string command) : command_(std::move(command)) {}

  // Names come without dashes in front. Targets must outlive read() and keep their value where the
  // flag is not given.
  void add(const std::string& name, bool& given);
  void add(const std::string& name, std::string& value);
  void add(const std::string& name, int64_t& value, int64_t least = 0);
  void add(const std::string& name, std::optional<std::string>& value);
  void add(const std::string& name, std::optional<int64_t>& value);
  void add(const std::string& name, std::optional<double>& value);
  // A choice as configurations spell it.
  template <config::IsChoice Choice>
  void add(const std::string& name, Choice& choice) {
    add_one(name, [=, this, &choice](const std::string& text) {
      for (const auto& spelling : config::spellings_of(choice).known) {
        if (text == spelling.text) {
          choice = spelling.value;
          return;
        }
      }
      std::vector<std::string> expected;
      for (const auto& spelling : config::spellings_of(choice).known) {
        expected.emplace_back(spelling.text);
      }
      refuse_value(name, text, expected);
    });
  }
  // May be given several times, unlike the ones above.
  void add(const std::string& name, std::vector<std::string>& values);
  void add(const std::string& name, std::function<void(const std::string& value)> use);
  // The same, and takes all words up to the next flag.
  void add_list(const std::string& name, std::vector<std::string>& values);
  // Another program's flag, in whatever case, refused with what to type instead. Never suggested.
  void add_foreign(const std::string& name, const std::string& instead);

  // Of all that are not another program's, as they were declared.
  std::vector<std::string> names() const;

  enum class Unknown {
    kRefuse,
    kKeep,  // among the words that are returned: they are somebody else's
  };
  std::vector<std::string> read(std::span<const std::string> arguments,
                                Unknown unknown = Unknown::kRefuse) const;

 private:
  enum class Takes { kNothing, kOne, kMany, kList, kForeign };
  struct Flag {
    std::string name;
    Takes takes;
    std::function<void(const std::string& value)> use;
  };
  void add_one(const std::string& name, std::function<void(const std::string& value)> use);
  const Flag* find(const std::string& word) const;
  [[noreturn]] void refuse(const std::string& word) const;
  [[noreturn]] static void refuse_value(const std::string& name, const std::string& text,
                                        const std::vector<std::string>& expected);

  std::string command_;
  std::vector<Flag> flags_;
};

bool asks_for_help(std::span<const std::string> arguments);

}  // namespace skein::cli
