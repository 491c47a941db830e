// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// May the name of a folder that is not there be one of the Hugging Face hub?

#include <string>

#include "skein/core/file.h"

namespace skein::plan {

// How to download it, as the end of a sentence that refuses the folder; empty for a folder that is
// there, and for a name that the hub cannot have: it has gpt2 and openai-community/gpt2.
std::string download_advice(const fs::path& folder);

}  // namespace skein::plan
