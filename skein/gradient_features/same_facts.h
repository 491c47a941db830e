// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include "skein/comm/group.h"
#include "skein/gradient_features/files/collection_facts.h"

namespace skein::gradient_features {

// Have all ranks been asked for the same collection? Those that were started by hand may have been
// given different words: their rows would be mixed under the digest of one. Collective. Throws
// UserError on every rank, naming the first rank that differs from the first, and the key.
void require_same_facts(const CollectionFacts& facts, comm::Group& group);

}  // namespace skein::gradient_features
