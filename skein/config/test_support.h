// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// For this folder's tests: load() as a command would call it, in a folder of its own.

#include <string>
#include <string_view>
#include <vector>

#include "skein/config/load.h"
#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::config {

class ConfigTest : public TemporaryFolder {
 protected:
  std::string write(const std::string& name, std::string_view content) const {
    return TemporaryFolder::write(name, content).string();
  }

  // The text as run.yaml, then the words of a command line.
  Resolved load_yaml(const std::string& yaml, std::vector<std::string> words = {}) const {
    words.insert(words.begin(), write("run.yaml", yaml));
    return load(words);
  }

  // The message without the folder's name, or "" when nothing was refused.
  std::string error_of(const std::string& yaml, const std::vector<std::string>& words = {}) const {
    return without_folder(refusal<UserError>([&] { load_yaml(yaml, words); }));
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
    for (const auto& detail : resolved.details) text += detail + "\n";
    return without_folder(text);
  }
};

}  // namespace skein::config
