// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/field_index.h"

#include <type_traits>

#include "skein/config/compat/known_keys.h"
#include "skein/config/compat/translated_keys.h"
#include "skein/config/fields.h"
#include "skein/config/run_config.h"
#include "skein/core/error.h"

namespace skein::config {
namespace {

FieldIndex make_index() {
  FieldIndex index;
  const auto add = [&](std::string_view spelling, const std::string& name) {
    const bool is_new = index.canonical.emplace(spelling, name).second;
    SKEIN_CHECK(is_new, "two fields share the spelling " + std::string(spelling));
  };
  RunConfig defaults;
  fields(defaults, [&](const std::string& name, auto& member, const About& about) {
    add(name, name);
    for (const auto& alias : about.aliases) add(alias, name);
    if (std::is_same_v<std::decay_t<decltype(member)>, bool>) index.booleans.insert(name);
  });
  return index;
}

}  // namespace

const FieldIndex& field_index() {
  static const FieldIndex kIndex = make_index();
  return kIndex;
}

bool is_key(const std::string& spelling) {
  return field_index().canonical.contains(spelling) || is_translated_key(spelling) ||
         find_known_key(spelling) != nullptr;
}

std::vector<std::string> key_spellings() {
  auto spellings = translated_keys();
  for (const auto& [spelling, name] : field_index().canonical) spellings.push_back(spelling);
  return spellings;
}

}  // namespace skein::config
