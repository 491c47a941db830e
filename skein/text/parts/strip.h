// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Leaves characters out. Strip: white space around a text before it is cut, and a given character
// around a token when it is decoded. StripAccents: all combining marks.

#include <memory>

#include "skein/text/parts/decoder.h"
#include "skein/text/parts/normalizer.h"

namespace skein::text {

std::unique_ptr<Normalizer> read_strip_normalizer(const PartReader& reader, const Json& json);
std::unique_ptr<Normalizer> read_strip_accents(const PartReader& reader, const Json& json);
std::unique_ptr<Decoder> read_strip_decoder(const PartReader& reader, const Json& json);

}  // namespace skein::text
