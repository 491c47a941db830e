// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a split's data like? Its files are looked at, nothing is prepared or written.

#include <cstdint>
#include <optional>

#include "skein/config/run_config.h"
#include "skein/data/source_files.h"
#include "skein/text/text_codec.h"

namespace skein::data {

struct PreviewOptions {
  Split split = Split::kTrain;
  config::BadLines bad_lines = config::BadLines::kStop;
  std::optional<int64_t> vocab_size;  // of the model; absent: it is not known
};

struct Preview {
  uint64_t bytes = 0;
  int64_t tokens = 0;
  bool exact = false;  // else extrapolated from the beginnings of the files
};

// Encodes the first 256 KiB of the first 16 files, and reads the first GiB of token files. Throws
// what prepare() and open_blocks() throw for what is seen there. Requires sources.
Preview preview(const Sources& sources, const text::TextCodec& codec,
                const PreviewOptions& options);

}  // namespace skein::data
