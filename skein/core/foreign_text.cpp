// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/core/foreign_text.h"

#include <fmt/format.h>

namespace skein {

std::string shown(std::string_view foreign) {
  constexpr size_t kMaxBytes = 500;
  size_t end = foreign.size();
  if (end > kMaxBytes) {
    end = kMaxBytes;
    while (end > 0 && (static_cast<unsigned char>(foreign[end]) & 0xC0) == 0x80) --end;
  }
  std::string text;
  for (const char c : foreign.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  if (end < foreign.size()) text += fmt::format("… ({} bytes)", foreign.size());
  return text;
}

}  // namespace skein
