// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For this folder's tests: what token files hold.

#include <initializer_list>
#include <string>

namespace skein::data {

// Little-endian words, as files hold them.
template <typename Word>
std::string bytes_of_words(std::initializer_list<Word> words) {
  return {reinterpret_cast<const char*>(words.begin()), words.size() * sizeof(Word)};
}

}  // namespace skein::data
