// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: a fresh folder that goes with its scope.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "skein/core/file.h"

namespace skein::checkpoint {

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "skein-checkpoint-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() override { fs::remove_all(folder_); }

  fs::path folder_;
};

}  // namespace skein::checkpoint
