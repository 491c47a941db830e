// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For this folder's tests: a temporary folder, and load() as a command would call it.

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/core/file.h"

namespace skein::config {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() {
    std::string pattern = (fs::temp_directory_path() / "skein-config-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~ConfigTest() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) const {
    const auto path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
    return path.string();
  }

  // The text as run.yaml, then the words of a command line.
  Resolved load_yaml(const std::string& yaml, std::vector<std::string> words = {}) const {
    words.insert(words.begin(), write("run.yaml", yaml));
    return load(words);
  }

  // The message without the folder's name, or "" when nothing was refused.
  std::string error_of(const std::string& yaml, const std::vector<std::string>& words = {}) const {
    try {
      load_yaml(yaml, words);
    } catch (const UserError& error) {
      return without_folder(error.what());
    }
    return "";
  }

  std::string without_folder(std::string text) const {
    const auto prefix = folder_.string() + "/";
    for (size_t at; (at = text.find(prefix)) != std::string::npos;) text.erase(at, prefix.size());
    return text;
  }

  // All notes, one per line.
  std::string notes_of(const Resolved& resolved) const {
    std::string text;
    for (const auto& note : resolved.notes) text += note + "\n";
    return without_folder(text);
  }

  fs::path folder_;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace skein::config
