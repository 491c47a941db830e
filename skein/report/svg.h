// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Pieces of SVG pictures. Classes are those of the picture's own style.

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace skein::report::svg {

inline std::string line(std::string_view css, double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", css, x1, y1,
      x2, y2);
}

// `anchor`: "start", "middle" or "end".
inline std::string text(double x, double y, std::string_view anchor, std::string_view content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     content);
}

inline std::string escaped(std::string_view content) {
  std::string out;
  for (const char c : content) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (static_cast<unsigned char>(c) >= 0x20)  // XML has no control characters
      out += c;
  }
  return out;
}

}  // namespace skein::report::svg
