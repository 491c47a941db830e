// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/error.h"
#include "skein/data/jsonl.h"

namespace skein::data {
namespace {

void for_each_chunk(const File& file, const std::function<void(std::string_view)>& take) {
  std::string chunk(size_t{1} << 20, '\0');
  const uint64_t size = file.size();
  for (uint64_t offset = 0; offset < size; offset += chunk.size()) {
    chunk.resize(std::min<uint64_t>(chunk.size(), size - offset));
    file.read_at(offset, std::as_writable_bytes(std::span(chunk)));
    take(chunk);
  }
}

void append_bytes(std::vector<uint16_t>& tokens, std::string_view bytes) {
  const auto* first = reinterpret_cast<const unsigned char*>(bytes.data());
  tokens.insert(tokens.end(), first, first + bytes.size());
}

std::vector<uint16_t> read_txt(const fs::path& path) {
  const auto file = File::open_to_read(path);
  std::vector<uint16_t> tokens;
  tokens.reserve(file.size() + 1);
  for_each_chunk(file, [&](std::string_view chunk) { append_bytes(tokens, chunk); });
  if (!tokens.empty()) tokens.push_back(kEndOfDocument);
  return tokens;
}

// Collects the lines of a file from its chunks and turns each into a document.
class JsonlReader {
 public:
  explicit JsonlReader(const fs::path& path) : path_(path) {}

  std::vector<uint16_t> read() {
    for_each_chunk(File::open_to_read(path_), [this](std::string_view chunk) { take(chunk); });
    end_line();
    return std::move(tokens_);
  }

 private:
  void take(std::string_view chunk) {
    for (size_t newline; (newline = chunk.find('\n')) != std::string_view::npos;) {
      extend_line(chunk.substr(0, newline));
      end_line();
      chunk.remove_prefix(newline + 1);
    }
    extend_line(chunk);
  }

  void extend_line(std::string_view part) {
    if (line_.size() + part.size() > kMaxLineBytes) {
      refuse(fmt::format("the line is longer than {} MiB", kMaxLineBytes >> 20));
    }
    line_ += part;
  }

  void end_line() {
    if (line_.find_first_not_of(" \t\r") != std::string::npos) {
      append_bytes(tokens_, text());
      tokens_.push_back(kEndOfDocument);
    }
    line_.clear();
    ++number_;
  }

  std::string text() const {
    try {
      return text_of_line(line_);
    } catch (const IoError& error) {
      refuse(error.what());
    }
  }

  [[noreturn]] void refuse(std::string_view reason) const {
    throw IoError(
        fmt::format("{}:{}: {}; each line must be one JSON object such as "
                    "{{\"text\": \"...\"}}",
                    path_.string(), number_, reason));
  }

  fs::path path_;
  std::vector<uint16_t> tokens_;
  std::string line_;
  int64_t number_ = 1;
};

void require_regular_file(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw UserError(fmt::format("train_file: {} does not exist{}", path.string(),
                                path.is_absolute() ? "" : " (relative to the current folder)"));
  }
  if (!fs::is_regular_file(status)) {
    throw UserError(fmt::format("train_file: {} is not a regular file", path.string()));
  }
}

}  // namespace

bool is_token_file(const fs::path& path) { return path.extension() == ".bin"; }

TokenArray read_tokens(const fs::path& path) {
  const auto kind = path.extension();
  if (kind != ".txt" && kind != ".jsonl" && kind != ".bin") {
    throw UserError(
        fmt::format("train_file: cannot tell what {} holds; its name must end in .txt (one "
                    "document), .jsonl (objects with \"text\") or .bin (uint16 token ids)",
                    path.string()));
  }
  require_regular_file(path);
  auto array = is_token_file(path)
                   ? TokenArray::map(path)
                   : TokenArray(kind == ".txt" ? read_txt(path) : JsonlReader(path).read());
  if (const size_t count = array.tokens().size(); count < 2) {
    throw IoError(
        fmt::format("train_file: {} holds {}; training needs at least two tokens, one to "
                    "read and one to predict",
                    path.string(), count == 0 ? "no data" : "only one token"));
  }
  return array;
}

}  // namespace skein::data
