// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/convert/model_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "skein/checkpoint/files/file_layout.h"
#include "skein/core/error.h"
#include "skein/core/folder.h"
#include "skein/text/tokenizer_files.h"

namespace skein::convert {
namespace {

bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

void copy_file(const fs::path& from, const char* name, const fs::path& to) {
  if (!is_there(from / name)) return;
  write_text(to / name, read_beneath(from, name));
}

bool is_template(const fs::directory_entry& entry) {
  return entry.path().extension() == ".jinja" && !entry.is_directory();
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  for (const auto& name : text::tokenizer_files_in(from)) {
    const auto folder = (to / name).parent_path();
    if (!is_there(folder)) make_new_directory(folder);
    write_text(to / name, read_beneath(from, name));
    if (folder != to) sync_directory(folder);
  }
}

}  // namespace

bool is_model_entry(const fs::directory_entry& entry) {
  const auto name = entry.path().filename().string();
  if (name == text::kTemplateFolder && fs::is_directory(entry.symlink_status())) {
    return std::ranges::all_of(fs::directory_iterator(entry.path()), is_template);
  }
  if (entry.is_directory()) return false;
  return name == "config.json" || name == kGenerationName ||
         checkpoint::is_layout_name(name, checkpoint::kModelStem) ||
         std::ranges::find(text::kTokenizerFiles, name) != std::end(text::kTokenizerFiles);
}

void write_text(const fs::path& path, std::string_view text) {
  const auto file = File::create(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
}

void copy_model_texts(const plan::ModelFolder& model, const std::string& generation,
                      const fs::path& out) {
  copy_tokenizer(model.tokenizer_folder(), out);
  if (generation.empty()) {
    copy_file(model.folder_of(kGenerationName), kGenerationName, out);
  } else {
    write_text(out / kGenerationName, generation);
  }
}

}  // namespace skein::convert
