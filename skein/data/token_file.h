// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Where in a `.bin` file are its tokens, and how wide are they?
//
//   llm.c     256 int32 words: magic, version, number of tokens; then the ids
//             20240520 version 1: uint16 (GPT-2); 20240801 version 7: uint32 (Llama 3)
//   nanoGPT   no header: uint16 ids; or uint32, when the ids cannot be anything else
//
// All little-endian.

#include "skein/data/token_array.h"

namespace skein::data {

bool is_token_file(const fs::path& path);

// Safe on hostile bytes. Throws IoError for a header that does not fit the file, an unknown
// version, or a size that is no whole number of ids.
TokenRegion locate_tokens(const fs::path& path);

}  // namespace skein::data
