// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which keys of a configuration does `skein gradients collect` read? A run's own file is a handy
// CONFIG, and most of it is about training.

#include <set>
#include <string>

#include "skein/config/load.h"

namespace skein::cli {

// "no effect on gradients: learning_rate, …": the keys that somebody gave and nobody reads,
// as they were written, in one line; empty: none. `unused` are keys that are read elsewhere, but
// not by this collection.
std::string idle_collect_keys(const config::Resolved& run, const std::set<std::string>& unused);

}  // namespace skein::cli
