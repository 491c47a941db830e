// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// NFC, NFD, NFKC, NFKD: one spelling for characters that have several.

#include <memory>

#include "skein/text/parts/normalizer.h"

namespace skein::text {

std::unique_ptr<Normalizer> read_nfc(const PartReader& reader, const Json& json);
std::unique_ptr<Normalizer> read_nfd(const PartReader& reader, const Json& json);
std::unique_ptr<Normalizer> read_nfkc(const PartReader& reader, const Json& json);
std::unique_ptr<Normalizer> read_nfkd(const PartReader& reader, const Json& json);

}  // namespace skein::text
