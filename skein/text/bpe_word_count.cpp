// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/bpe_word_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "skein/core/error.h"
#include "skein/text/bpe.h"
#include "skein/text/jsonl.h"
#include "skein/text/parts/byte_level.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

constexpr size_t kChunkBytes = size_t{2} << 20;
constexpr size_t kMaxCarryBytes = size_t{64} << 20;  // of one line, or of text without a space

using Counts = StringMap<uint64_t>;

struct Chunk {
  const fs::path* file = nullptr;
  bool is_jsonl = false;
  int64_t first_line = 1;
  std::string text;
};

bool is_jsonl(const fs::path& file) {
  const auto extension = file.extension();
  if (extension == ".jsonl") return true;
  if (extension == ".txt") return false;
  throw UserError(fmt::format("--input {}: expected a .txt or .jsonl file", file.string()));
}

bool ends_with_whitespace(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 3) {
    const auto tail = text.substr(--begin);
    if (valid_utf8_prefix(tail) == tail.size()) return is_whitespace(last_character(tail).code);
  }
  return false;
}

// The last place where a .txt chunk may end: before a space or a newline that follows something
// else than white space. No pre-token reaches across, and none looks back. 0: no such place.
size_t text_cut(std::string_view text) {
  for (size_t i = text.size(); i-- > 1;) {
    if ((text[i] == ' ' || text[i] == '\n') && !ends_with_whitespace(text.substr(0, i))) return i;
  }
  return 0;
}

size_t line_cut(std::string_view text) { return text.rfind('\n') + 1; }

// Hands out the chunks of all files, to one thread at a time.
class ChunkReader {
 public:
  ChunkReader(const std::vector<fs::path>& files, const std::function<void(uint64_t)>& progress)
      : files_(files), progress_(progress) {
    for (const auto& path : files) {
      is_jsonl(path);
      if (!fs::is_regular_file(path)) {
        throw UserError(fmt::format("--input {}: no such file", path.string()));
      }
    }
  }

  std::optional<Chunk> next() {
    const std::lock_guard lock(mutex_);
    while (true) {
      if (stopped_ || (!file_ && !open_next())) return std::nullopt;
      if (auto chunk = read_chunk()) return chunk;
    }
  }

  // No more chunks: a thread has failed.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }

 private:
  bool open_next() {
    if (next_file_ == files_.size()) return false;
    path_ = &files_[next_file_++];
    file_ = File::open_to_read(*path_);
    size_ = file_.size();
    offset_ = 0;
    line_ = 1;
    carry_.clear();
    return true;
  }

  // None at the end of the file.
  std::optional<Chunk> read_chunk() {
    const bool jsonl = is_jsonl(*path_);
    size_t cut = 0;
    while (cut == 0 && offset_ < size_) {
      extend();
      cut = offset_ == size_ ? carry_.size() : jsonl ? line_cut(carry_) : text_cut(carry_);
      if (cut == 0 && carry_.size() > kMaxCarryBytes) cut = forced_cut(jsonl);
    }
    if (cut == 0) {
      file_ = File();
      return std::nullopt;
    }
    Chunk chunk{path_, jsonl, line_, carry_.substr(0, cut)};
    carry_.erase(0, cut);
    line_ += std::count(chunk.text.begin(), chunk.text.end(), '\n');
    return chunk;
  }

  void extend() {
    const size_t count = std::min<uint64_t>(kChunkBytes, size_ - offset_);
    const size_t before = carry_.size();
    carry_.resize(before + count);
    file_.read_at(offset_, std::as_writable_bytes(std::span(carry_).subspan(before)));
    offset_ += count;
    if (progress_) progress_(count);
  }

  // Text without a single space: cut between two characters, so that memory stays bounded.
  size_t forced_cut(bool jsonl) const {
    if (jsonl) {
      throw IoError(fmt::format("{}:{}: the line is longer than {} MiB", path_->string(), line_,
                                kMaxCarryBytes >> 20));
    }
    size_t cut = carry_.size() - 1;
    while (cut > 1 && (static_cast<uint8_t>(carry_[cut]) & 0xC0) == 0x80) --cut;
    return cut;
  }

  const std::vector<fs::path>& files_;
  const std::function<void(uint64_t)>& progress_;
  std::mutex mutex_;
  bool stopped_ = false;
  size_t next_file_ = 0;
  const fs::path* path_ = nullptr;
  File file_;
  uint64_t size_ = 0, offset_ = 0;
  int64_t line_ = 1;
  std::string carry_;  // read, and not yet handed out
};

class Counter {
 public:
  explicit Counter(const Split& splitter) : splitter_(splitter) {}

  void count(const Chunk& chunk) {
    if (!chunk.is_jsonl) {
      require_utf8(chunk.text, chunk.file->string(), chunk.first_line);
      return count_text(chunk.text);
    }
    std::string_view rest = chunk.text;
    for (int64_t number = chunk.first_line; !rest.empty(); ++number) {
      const auto line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
        count_text(text_of(line, *chunk.file, number));
      }
    }
  }

  Counts take() { return std::move(counts_); }

 private:
  static std::string text_of(std::string_view line, const fs::path& file, int64_t number) {
    try {
      return text_of_line(line);
    } catch (const IoError& error) {
      throw IoError(fmt::format("{}:{}: {}", file.string(), number, error.what()));
    }
  }

  void count_text(std::string_view text) {
    Workspace workspace(Workspace::Origins::kIgnored, text.size());
    words_.clear();
    splitter_.split(Piece{text}, words_, workspace);
    for (const auto& piece : words_) {
      auto word = piece.text;
      for (; word.size() > kMaxWordBytes; word.remove_prefix(kMaxWordBytes)) {
        add(word.substr(0, kMaxWordBytes));
      }
      add(word);
    }
  }

  void add(std::string_view word) {
    const auto found = counts_.find(word);
    if (found != counts_.end()) {
      ++found->second;
    } else {
      counts_.emplace(word, 1);
    }
  }

  const Split& splitter_;
  Pieces words_;
  Counts counts_;
};

std::vector<WordCount> sorted(Counts counts) {
  std::vector<WordCount> words;
  words.reserve(counts.size());
  while (!counts.empty()) {
    auto node = counts.extract(counts.begin());
    words.push_back({std::move(node.key()), node.mapped()});
  }
  std::ranges::sort(words, {}, &WordCount::bytes);
  return words;
}

}  // namespace

std::vector<WordCount> count_words(const std::vector<fs::path>& files,
                                   const WordCountOptions& options) {
  const Split splitter{Pattern(kGpt2Pattern)};
  ChunkReader reader(files, options.progress);
  Counts total;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      Counter counter(splitter);
      while (const auto chunk = reader.next()) counter.count(*chunk);
      const auto counts = counter.take();
      const std::lock_guard lock(mutex);
      for (const auto& [word, count] : counts) total[word] += count;
    } catch (...) {
      reader.stop();
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> threads;
  for (int i = 1; i < (options.threads > 0 ? options.threads : cores); ++i) {
    threads.emplace_back(work);
  }
  work();
  threads.clear();
  if (failure) std::rethrow_exception(failure);
  return sorted(std::move(total));
}

}  // namespace skein::text
