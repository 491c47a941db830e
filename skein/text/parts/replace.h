// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Replace: every match of a pattern becomes a fixed text. As a step of normalising and of decoding.

#include <memory>
#include <string>
#include <string_view>

#include "skein/text/parts/decoder.h"
#include "skein/text/parts/normalizer.h"
#include "skein/text/parts/pattern.h"

namespace skein::text {

Piece replace_all(const Piece& piece, const Pattern& pattern, std::string_view content,
                  Workspace& workspace);
std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content);

std::unique_ptr<Normalizer> read_replace_normalizer(const PartReader& reader, const Json& json);
std::unique_ptr<Decoder> read_replace_decoder(const PartReader& reader, const Json& json);

}  // namespace skein::text
