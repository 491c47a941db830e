// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/source_files.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/run_mark.h"
#include "skein/data/token_file.h"

namespace skein::data {
namespace {

// Which files are read, and how messages say so.
struct FileKinds {
  std::span<const std::string_view> endings;
  const char* listed;
  const char* explained;

  bool has(const fs::path& path) const {
    return std::ranges::find(endings, path.extension().string()) != endings.end();
  }
};

constexpr std::array<std::string_view, 3> kDocumentEndings = {".txt", ".jsonl", ".bin"};
constexpr std::array<std::string_view, 2> kRowEndings = {".jsonl", ".json"};
constexpr FileKinds kDocuments{
    kDocumentEndings, ".txt, .jsonl or .bin",
    ".txt (one document), .jsonl (objects with \"text\") or .bin (token ids)"};
constexpr FileKinds kRows{kRowEndings, ".jsonl or .json",
                          ".jsonl (one row per line) or .json (a list of rows)"};

// LLaMA-Factory's list of data sets, and what `datasets` writes beside its own.
bool is_registry(const fs::path& path) {
  return path.filename() == "dataset_info.json" || path.filename() == "dataset_infos.json";
}

// All data files below a folder.
class FolderWalk {
 public:
  FolderWalk(const char* key, const FileKinds& kinds, std::vector<std::string>& notes)
      : key_(key), kinds_(kinds), notes_(notes) {}

  std::vector<fs::path> files(const fs::path& root) {
    enter(root);
    // Links last: a folder that is also reachable without one keeps that path.
    while (!links_.empty()) {
      auto links = std::exchange(links_, {});
      std::sort(links.begin(), links.end());
      for (const auto& link : links) enter(link);
    }
    if (files_.empty()) {
      throw UserError(fmt::format("{}: {} holds no {} file", key_, root.string(), kinds_.listed));
    }
    std::sort(files_.begin(), files_.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    note_others(root);
    return std::move(files_);
  }

 private:
  void note_others(const fs::path& root) {
    if (others_.empty()) return;
    constexpr size_t kShown = 3;
    std::sort(others_.begin(), others_.end());
    std::string names;
    for (size_t i = 0; i < std::min(others_.size(), kShown); ++i) {
      names += (i == 0 ? "" : ", ") + others_[i].lexically_relative(root).string();
    }
    notes_.push_back(fmt::format("{}: {} of {} left out, which are not {}: {}{}", key_,
                                 counted(others_.size(), "file"), root.string(), kinds_.listed,
                                 names, others_.size() > kShown ? ", …" : ""));
  }

  void enter(const fs::path& folder) {
    struct stat info{};
    if (::stat(folder.c_str(), &info) != 0) {
      throw_errno(fmt::format("{}: cannot read folder {}", key_, folder.string()));
    }
    if (!seen_.emplace(info.st_dev, info.st_ino).second) return;
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      entries.push_back(*it);
    }
    if (error) {
      throw IoError(
          fmt::format("{}: cannot read folder {}: {}", key_, folder.string(), error.message()));
    }
    for (const auto& entry : entries) take(entry);
  }

  void take(const fs::directory_entry& entry) {
    const auto& path = entry.path();
    if (path.filename().native().starts_with('.')) return;
    std::error_code ignored;
    if (entry.is_directory(ignored)) {
      if (fs::exists(fs::symlink_status(path / kRunMark, ignored))) {
        notes_.push_back(
            fmt::format("{}: {} is the folder of a run: left out", key_, path.string()));
      } else if (entry.is_symlink(ignored)) {
        links_.push_back(path);
      } else {
        enter(path);
      }
    } else if (kinds_.has(path) && is_registry(path)) {
      notes_.push_back(fmt::format("{}: {} describes data sets and holds no row: left out", key_,
                                   path.string()));
    } else if (kinds_.has(path)) {
      if (!entry.is_regular_file(ignored)) {
        throw UserError(
            fmt::format("{}: {} is not a regular file, or a link to nothing", key_, path.string()));
      }
      files_.push_back(path);
    } else {
      others_.push_back(path);
    }
  }

  const char* key_;
  const FileKinds& kinds_;
  std::vector<std::string>& notes_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  std::vector<fs::path> links_, files_, others_;
};

// "fineweb_train_000001.bin" has the words fineweb, train and 000001.
bool has_word(const fs::path& path, std::string_view word) {
  std::string stem = path.stem().string();
  std::ranges::replace_if(stem, [](char c) { return c == '-' || c == '.'; }, '_');
  return ("_" + stem + "_").find(fmt::format("_{}_", word)) != std::string::npos;
}

// What a key's files are wanted for. kBeside: the evaluation files that lie in a training folder.
enum class Purpose { kTraining, kEvaluation, kBeside };

// The token files of one split where a folder holds both (nanoGPT, llm.c), else all files.
std::vector<fs::path> split_folder(std::vector<fs::path> files, Purpose purpose) {
  const auto is_named = [](std::string_view word) {
    return [word](const fs::path& path) { return is_token_file(path) && has_word(path, word); };
  };
  if (std::ranges::none_of(files, is_named("train")) ||
      std::ranges::none_of(files, is_named("val"))) {
    return purpose == Purpose::kBeside ? std::vector<fs::path>{} : std::move(files);
  }
  std::erase_if(files, [&](const fs::path& path) {
    return !is_named(purpose == Purpose::kTraining ? "train" : "val")(path);
  });
  return files;
}

std::vector<std::string> comma_separated(const std::string& text) {
  if (std::error_code ignored; fs::exists(text, ignored)) return {text};  // a comma in its name
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    auto part = text.substr(begin, end - begin);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) parts.push_back(std::move(part));
    begin = end + 1;
  }
  return parts;
}

std::vector<fs::path> expand(const char* key, const std::string& pattern) {
  std::error_code ignored;
  if (fs::exists(pattern, ignored) || pattern.find_first_of("*?[") == std::string::npos) {
    return {pattern};
  }
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 || paths.empty()) {
    throw UserError(fmt::format("{}: no file matches {}", key, pattern));
  }
  std::sort(paths.begin(), paths.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return paths;
}

void require_data_file(const char* key, const FileKinds& kinds, const fs::path& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  if (!fs::exists(status)) {
    throw UserError(fmt::format("{}: {} does not exist{}", key, path.string(),
                                path.is_absolute() ? "" : " (relative to the current folder)"));
  }
  if (!kinds.has(path)) {
    throw UserError(fmt::format("{}: cannot tell what {} holds; its name must end in {}", key,
                                path.string(), kinds.explained));
  }
  if (!fs::is_regular_file(status)) {
    throw UserError(fmt::format("{}: {} is not a regular file", key, path.string()));
  }
}

// What one pair of keys names.
struct Keys {
  const char* file_key;
  const std::string& file;
  const char* folder_key;
  const std::string& folder;
  const FileKinds& kinds;

  Sources files(Purpose purpose) const {
    Sources all;
    for (const auto& part : comma_separated(file)) {
      for (const auto& path : expand(file_key, part)) add(file_key, path, purpose, all);
    }
    if (!folder.empty()) {
      if (std::error_code ignored; !fs::is_directory(folder, ignored)) {
        throw UserError(fmt::format("{}: {} is not a folder{}", folder_key, folder,
                                    fs::exists(folder, ignored) ? "" : " (it does not exist)"));
      }
      Sources below;
      add(folder_key, folder, purpose, below);
      append_others(std::move(below), all);
    }
    return all;
  }

 private:
  void add(const char* key, const fs::path& path, Purpose purpose, Sources& all) const {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      std::ranges::move(split_folder(FolderWalk(key, kinds, all.notes).files(path), purpose),
                        std::back_inserter(all.files));
    } else {
      require_data_file(key, kinds, path);
      if (purpose != Purpose::kBeside) all.files.push_back(path);
    }
  }

  // A file of the folder key that the file key names too is meant once.
  void append_others(Sources below, Sources& all) const {
    std::set<fs::path> named;
    for (const auto& path : all.files) named.insert(fs::canonical(path));
    std::ranges::move(below.notes, std::back_inserter(all.notes));
    for (auto& path : below.files) {
      if (named.contains(fs::canonical(path))) {
        all.notes.push_back(fmt::format("{} is named by {} and lies in {}: it is read once",
                                        path.string(), file_key, folder_key));
      } else {
        all.files.push_back(std::move(path));
      }
    }
  }
};

Sources of_one_kind(Sources sources, Split split) {
  const auto tokens = std::ranges::find_if(sources.files, is_token_file);
  if (tokens == sources.files.end()) return sources;
  sources.kind = SourceKind::kTokens;
  const auto text = std::ranges::find_if_not(sources.files, is_token_file);
  if (text != sources.files.end()) {
    throw UserError(fmt::format("the {} data mixes text ({}) with token ids ({}); give one kind",
                                split_name(split), text->string(), tokens->string()));
  }
  return sources;
}

Sources files_of(const config::DataConfig& data, Split split, const FileKinds& kinds) {
  const Keys train{"train_file", data.train_file, "train_file_dir", data.train_file_dir, kinds};
  if (split == Split::kTrain) return train.files(Purpose::kTraining);
  if (data.eval_file.empty() && data.validation_file_dir.empty()) {
    return train.files(Purpose::kBeside);
  }
  const Keys eval{"eval_file", data.eval_file, "validation_file_dir", data.validation_file_dir,
                  kinds};
  return eval.files(Purpose::kEvaluation);
}

}  // namespace

const char* split_name(Split split) { return split == Split::kTrain ? "train" : "eval"; }

Sources find_sources(const config::DataConfig& data, Split split) {
  return of_one_kind(files_of(data, split, kDocuments), split);
}

Sources find_row_sources(const config::DataConfig& data, Split split) {
  auto sources = files_of(data, split, kRows);
  sources.kind = SourceKind::kRows;
  return sources;
}

Sources find_files(const char* flag, const std::string& named) {
  const std::string none;
  return of_one_kind(Keys{flag, named, flag, none, kDocuments}.files(Purpose::kEvaluation),
                     Split::kEval);
}

Sources find_row_files(const char* flag, const std::string& named) {
  const std::string none;
  auto sources = Keys{flag, named, flag, none, kRows}.files(Purpose::kEvaluation);
  sources.kind = SourceKind::kRows;
  return sources;
}

}  // namespace skein::data
