// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests: a fresh folder that goes with its scope.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <string_view>

#include "skein/core/file.h"

namespace skein::data {

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "skein-data-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, std::string_view content) const {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, content);
    return folder_ / name;
  }

  fs::path folder_;
};

// The message of the Error that `action` throws.
template <typename Error, typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// Little-endian words, as files hold them.
template <typename Word>
std::string bytes_of_words(std::initializer_list<Word> words) {
  return {reinterpret_cast<const char*>(words.begin()), words.size() * sizeof(Word)};
}

}  // namespace skein::data
