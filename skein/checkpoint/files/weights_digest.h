// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which weights are these? An adapter belongs to one base and is worth nothing with another.

#include <string>

#include "skein/checkpoint/files/model_files.h"

namespace skein::checkpoint {

// Of every tensor's name, type, shape, and the first, middle and last 4 KiB of its bytes: alike for
// a model in one file and in several, and known without reading gigabytes. It tells models apart;
// it does not find a flipped bit. Stored on disk (docs/checkpoint_format.md).
std::string weights_digest(const ModelFiles& files);

}  // namespace skein::checkpoint
