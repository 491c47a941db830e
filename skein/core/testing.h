// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For tests of every folder: a fresh folder that goes with its test, and the words of a refusal.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <string_view>

#include "skein/core/file.h"

namespace skein {

// The caller removes it.
inline fs::path make_temporary_folder(std::string_view name,
                                      const fs::path& parent = fs::temp_directory_path()) {
  auto pattern = (parent / fmt::format("skein-{}-XXXXXX", name)).string();
  return ::mkdtemp(pattern.data());
}

// A fixture with a folder of its own.
class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() : folder_(make_temporary_folder("test")) {}
  ~TemporaryFolder() override { fs::remove_all(folder_); }

  // `name` may hold folders, which are made.
  fs::path write(const std::string& name, std::string_view content) const {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, content);
    return folder_ / name;
  }

  fs::path folder_;
};

// The message of the Error that `action` throws; empty when it throws nothing.
template <typename Error, typename Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// With EXPECT_PRED2, which shows both.
inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace skein
