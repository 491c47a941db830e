// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Byte fallback: tokens "<0x00>" to "<0xFF>" for the bytes of characters that the vocabulary lacks.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "skein/text/parts/decoder.h"

namespace skein::text {

std::string byte_token(uint8_t byte);
// The byte that a token stands for; its digits may be lower case too.
std::optional<uint8_t> byte_of_token(std::string_view token);

std::unique_ptr<Decoder> read_byte_fallback_decoder(const PartReader& reader, const Json& json);

}  // namespace skein::text
