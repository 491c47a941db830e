// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is in the files of a split, and what are the prepared data that are made of them called?

#include <string>
#include <vector>

#include "skein/data/file_index.h"
#include "skein/data/source_files.h"
#include "skein/data/token_cache.h"

namespace skein::data {

// The digests of all files; unchanged ones are not read. Throws IoError when a file cannot be read,
// or changes meanwhile.
std::vector<FileFacts> facts_of(const Sources& sources, FileIndex& index, int threads);

// 32 hexadecimal digits: equal for equal content of the sources, in order, and equal encoders.
std::string prepared_key(PreparedKind kind, const Sources& sources,
                         const std::vector<FileFacts>& facts, const std::string& encoder);

}  // namespace skein::data
