// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/cli/gradients/shell_word.h"

#include "skein/core/foreign_text.h"

namespace skein::cli {

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
  const bool is_plain = !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
  auto word = shown(text);
  if (is_plain) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace skein::cli
