// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// The part of Gloo's interface that LibTorch's ProcessGroupGloo.hpp names.
//
// The wheel holds Gloo's code but not its headers. These declarations are enough because nothing
// here is constructed, derived from or laid out by us: LibTorch's own objects do all of that. The
// headers of a distribution's Gloo would be of another version, with other layouts.

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
