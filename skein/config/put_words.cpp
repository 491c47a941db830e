// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/put_words.h"

#include <fmt/format.h>

#include <sstream>

#include "skein/config/fields.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"

namespace skein::config {

void put_words(Resolved& resolved, const std::string& words, const std::string& why) {
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) throw UserError(fmt::format("'{}' is no key=value", word));
    const auto key = word.substr(0, equals);
    auto origin = resolved.origin_of(key);
    origin.spelling = why;
    bool is_known = false;
    fields(resolved.config, [&](const std::string& name, auto& member, const About& about) {
      if (name != key) return;
      is_known = true;
      assign({key, scalar(word.substr(equals + 1), origin), origin}, about, member);
    });
    if (!is_known) throw UserError(fmt::format("unknown key '{}'", key));
    resolved.origins[key] = origin;
  }
}

}  // namespace skein::config
