// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/character_class.h"

#include <algorithm>
#include <string>
#include <utility>

#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

// By bit, from the lowest.
constexpr const char* kKinds[] = {R"(\p{L})",
                                  R"(\p{N})",
                                  R"(\s)",
                                  R"(\p{M})",
                                  R"(\p{P})",
                                  R"(\p{S})",
                                  R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                                  R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"};

bool is_surrogate(char32_t code) { return code >= 0xD800 && code < 0xE000; }

}  // namespace

const CharacterClasses& CharacterClasses::get() {
  static const CharacterClasses classes;
  return classes;
}

CharacterClasses::CharacterClasses() {
  for (const char* kind : kKinds) kinds_.emplace_back(kind, Pattern::Engine::kPcre2);
  std::copy_n(make_page(0).begin(), ascii_.size(), ascii_.begin());
}

const CharacterClasses::Page& CharacterClasses::make_page(size_t page) const {
  const std::lock_guard lock(mutex_);
  if (const auto* made = pages_[page].load(std::memory_order_acquire)) return *made;
  auto classes = std::make_unique<Page>();
  classes->fill(0);
  std::string text;
  std::vector<size_t> members;  // by byte of the text
  for (size_t i = 0; i < kPage; ++i) {
    const auto code = static_cast<char32_t>(page * kPage + i);
    if (!is_surrogate(code)) text += to_utf8(code);
    members.resize(text.size(), i);
  }
  for (size_t bit = 0; bit < kinds_.size(); ++bit) {
    Pattern::Search search(kinds_[bit], text);
    while (const auto match = search.next()) (*classes)[members[match->begin]] |= 1U << bit;
  }
  made_.push_back(std::move(classes));
  pages_[page].store(made_.back().get(), std::memory_order_release);
  return *made_.back();
}

}  // namespace skein::text
