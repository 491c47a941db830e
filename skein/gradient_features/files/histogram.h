// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A picture of how scores are spread.

#include <span>
#include <string>
#include <string_view>

namespace skein::gradient_features {

// A whole SVG document, light or dark as the viewer prefers. Bars count the scores that are finite;
// those from `cut` on have another colour.
std::string histogram_svg(std::span<const float> scores, float cut, std::string_view title);

}  // namespace skein::gradient_features
