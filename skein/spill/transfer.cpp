// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/transfer.h"

#include <cerrno>

namespace skein::spill {
namespace {

constexpr int kMostPauses = 10000;

}  // namespace

bool Transfer::take(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) {
    if (++pauses < kMostPauses) return true;
    failure = static_cast<int>(-result);
    return false;
  }
  if (result < 0) {
    failure = static_cast<int>(-result);
    return false;
  }
  carried += static_cast<size_t>(result);
  if (carried == memory.size()) return false;
  // A direct read that stops inside a sector has met the end; its rest could not even be asked for.
  ended = result == 0 || carried % kAlignment != 0;
  return !ended;
}

}  // namespace skein::spill
