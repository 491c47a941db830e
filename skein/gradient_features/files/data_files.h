// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Are these the files that samples were collected from, in the same order?
//
// A sample is known by the number of its row alone: of another file, or of the same ones in another
// order, it would be somebody else's.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"
#include "skein/gradient_features/files/line_index.h"

namespace skein::gradient_features {

struct DataFile {
  int64_t rows = 0;
  std::string digest;  // file_digest()
  bool operator==(const DataFile&) const = default;
};

// Of its bytes, as docs/gradient_format.md has it; read by several threads.
std::string file_digest(const fs::path& path);

// "37:0123…", as files hold it. parse_data_file() throws IoError.
std::string to_text(const DataFile& file);
DataFile parse_data_file(std::string_view text);
// The same with commas in between; empty for none.
std::string to_text(std::span<const DataFile> files);
std::vector<DataFile> parse_data_files(std::string_view text);

// Throws UserError, naming the first file that is another one, and whether it is one of the others.
// `about` begins messages: "scores.safetensors was made of".
void require_data_files(std::span<const DataFile> known, std::span<const LineIndex> given,
                        const std::string& about);

}  // namespace skein::gradient_features
