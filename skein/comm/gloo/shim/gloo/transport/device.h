// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// See ../context.h.

namespace gloo::transport {

class Device;

struct UnboundBuffer {
  virtual ~UnboundBuffer();
};

}  // namespace gloo::transport
