// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

#include <memory>

#include "skein/plan/families/decoder.h"

namespace skein::plan {

// Gemma: norms before and behind attention and MLP, their weights stored less one; embeddings times
// √channels; scores scaled by query_pre_attn_scalar; windows in most layers.
//
// Gemma 2 caps scores and logits, and every other layer slides.
std::unique_ptr<Architecture> read_gemma2(const ConfigReader& reader);
// Gemma 3's text models normalise queries and keys; every sixth layer sees everything, with a RoPE
// of its own.
std::unique_ptr<Architecture> read_gemma3_text(const ConfigReader& reader);

}  // namespace skein::plan
