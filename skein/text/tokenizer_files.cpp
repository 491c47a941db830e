// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/tokenizer_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

constexpr const char* kTokenizer = "tokenizer.json";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// Manifests and plans are JSON, which has no place for other bytes.
void require_utf8(const fs::path& path) {
  const auto name = path.filename().string();
  if (valid_utf8_prefix(name) == name.size()) return;
  throw UserError(
      fmt::format("{}: the name of this file is not UTF-8, and so nothing can be saved "
                  "under it: rename or remove it",
                  shown(repaired_utf8(path.string()))));
}

}  // namespace

std::vector<std::string> tokenizer_files_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const char* name : kTokenizerFiles) {
    if (is_there(folder / name)) names.emplace_back(name);
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / kTemplateFolder, ignored)) {
    const bool is_template = entry.path().extension() == ".jinja" && !entry.is_directory(ignored);
    if (!is_template) continue;
    require_utf8(entry.path());
    names.push_back(kTemplateFolder / entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

TokenizerNames tokenizer_names(
    const fs::path& folder,
    const std::function<std::optional<std::string>(const char* name)>& text_of) {
  TokenizerNames names;
  for (const char* name : kNamingFiles) {
    const auto text = text_of(name);
    if (!text) continue;
    const auto said = parse_tokenizer_config(*text, (folder / name).string());
    if (!names.bos) names.bos = said.bos;
    if (!names.eos) names.eos = said.eos;
    if (!names.pad) names.pad = said.pad;
  }
  return names;
}

TokenizerPlace tokenizer_place(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return {.file = path / kTokenizer, .folder = path};
  auto folder = path.parent_path();
  if (folder.empty()) folder = ".";
  const bool is_alone = path.filename() != kTokenizer && is_there(folder / kTokenizer);
  return {.file = path, .folder = is_alone ? fs::path() : folder};
}

}  // namespace skein::text
