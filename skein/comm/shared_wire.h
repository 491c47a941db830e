// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A wire through memory that the ranks of one machine share: several times as fast as loopback.
//
// The memory is a memfd of rank 0, which the others open through /proc. It has no name, takes no
// room in /dev/shm (64 MiB in many containers), only processes of the same user can open it, and it
// goes with the last rank, however that ends. It is small: what is longer than a buffer passes
// through in pieces.
//
// One machine is one kernel, and one view of its processes and networks: ranks in containers or
// network namespaces of their own count as ranks of other machines.

#include <chrono>
#include <memory>

#include "skein/comm/wire.h"

namespace skein::comm {

// Collective over `meeting`, a wire of the same ranks. None, on all ranks alike, where they do not
// all want it, are not on one machine, or cannot share memory there: a debug line says why.
std::unique_ptr<Wire> share_memory(Wire& meeting, bool wanted, std::chrono::milliseconds timeout);

}  // namespace skein::comm
