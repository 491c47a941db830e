// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/text_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "skein/core/error.h"
#include "skein/text/jsonl.h"
#include "skein/text/parts/unicode.h"

namespace skein::data {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxPieceBytes = uint64_t{1} << 30;
constexpr size_t kBadLinesKept = 5;

bool is_jsonl(const fs::path& path) { return path.extension() == ".jsonl"; }

std::string read_range(const File& file, uint64_t begin, uint64_t end) {
  std::string bytes(end - begin, '\0');
  file.read_at(begin, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Collects the lines of a piece from its chunks and turns each into a document.
class JsonlPiece {
 public:
  JsonlPiece(const text::TextCodec& codec, config::BadLines policy)
      : codec_(codec), policy_(policy) {}

  EncodedPiece encode(const File& file, const Piece& piece) {
    for (uint64_t at = piece.begin; at < piece.end && !stopped_; at += kWindowBytes) {
      take(read_range(file, at, std::min(at + kWindowBytes, piece.end)));
    }
    end_line();
    return std::move(result_);
  }

 private:
  void take(std::string_view chunk) {
    for (size_t newline; !stopped_ && (newline = chunk.find('\n')) != std::string_view::npos;) {
      extend_line(chunk.substr(0, newline));
      end_line();
      ++result_.lines;
      chunk.remove_prefix(newline + 1);
    }
    extend_line(chunk);
  }

  void extend_line(std::string_view part) {
    if (line_.size() + part.size() > text::kMaxLineBytes) {
      if (!too_long_)
        refuse(fmt::format("the line is longer than {} MiB", text::kMaxLineBytes >> 20));
      too_long_ = true;
      line_.clear();
    }
    if (!too_long_) line_ += part;
  }

  void end_line() {
    if (!too_long_ && !stopped_ && line_.find_first_not_of(" \t\r") != std::string::npos) {
      add_document();
    }
    line_.clear();
    too_long_ = false;
  }

  void add_document() {
    try {
      codec_.encode(text::text_of_line(line_), result_.tokens);
      result_.tokens.push_back(codec_.end_of_document());
      ++result_.documents;
    } catch (const text::NoText& error) {
      refuse(error.what(), /*has_text=*/false);
    } catch (const IoError& error) {
      refuse(error.what());
    }
  }

  void refuse(std::string reason, bool has_text = true) {
    reason += "; each line must be one JSON object such as {\"text\": \"...\"}";
    ++result_.num_bad_lines;
    if (result_.bad_lines.size() < kBadLinesKept) {
      result_.bad_lines.push_back({result_.lines, std::move(reason), has_text});
    }
    stopped_ = policy_ == config::BadLines::kStop;
  }

  const text::TextCodec& codec_;
  config::BadLines policy_;
  EncodedPiece result_;
  std::string line_;
  bool too_long_ = false;
  bool stopped_ = false;
};

int64_t count_lines(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

// Takes the lines that are not UTF-8 out of `text` and notes them.
std::string without_bad_lines(std::string text, config::BadLines policy, EncodedPiece& result) {
  std::string kept;
  std::string_view rest = text;
  int64_t line = 0;
  for (size_t bad; (bad = text::valid_utf8_prefix(rest)) < rest.size();) {
    const size_t begin = bad == 0 ? 0 : rest.rfind('\n', bad - 1) + 1;  // npos + 1 is 0
    const size_t end = std::min(rest.find('\n', bad), rest.size() - 1) + 1;
    line += count_lines(rest.substr(0, begin));
    ++result.num_bad_lines;
    if (result.bad_lines.size() < kBadLinesKept) {
      result.bad_lines.push_back(
          {line, fmt::format("invalid UTF-8 at byte {} of the line", bad - begin + 1)});
    }
    if (policy == config::BadLines::kStop) return {};
    kept += rest.substr(0, begin);
    line += count_lines(rest.substr(begin, end - begin));
    rest.remove_prefix(end);
  }
  if (result.num_bad_lines == 0) return text;
  return kept.append(rest);
}

EncodedPiece encode_txt_piece(const File& file, const Piece& piece, const text::TextCodec& codec,
                              config::BadLines policy) {
  EncodedPiece result;
  auto text = read_range(file, piece.begin, piece.end);
  result.lines = count_lines(text);
  if (codec.cuts() != text::Cuts::kAnywhere) {
    text = without_bad_lines(std::move(text), policy, result);
  }
  codec.encode(text, result.tokens);
  if (piece.is_last) {
    result.tokens.push_back(codec.end_of_document());
    result.documents = 1;
  }
  return result;
}

// Refuses files of which every line would be bad.
void check_beginning(const File& file, const fs::path& path, const text::TextCodec& codec,
                     config::BadLines policy) {
  if (!is_jsonl(path) && codec.cuts() == text::Cuts::kAnywhere) return;  // any bytes will do
  const auto bytes = read_range(file, 0, std::min<uint64_t>(file.size(), text::kEncodingBytes));
  text::require_utf8(bytes, path);
  const auto first = bytes.find_first_not_of(" \t\r\n");
  if (!is_jsonl(path) || policy == config::BadLines::kSkip) return;
  if (first != std::string::npos && bytes[first] == '[') {
    throw IoError(fmt::format(
        "{0}: the file is a JSON list, and each line must be one JSON object such as {{\"text\": "
        "\"...\"}}: jq -c '.[]' {0} > NEW.jsonl",
        path.string()));
  }
}

}  // namespace

PieceCutter::PieceCutter(std::span<const fs::path> files, text::Cuts cuts, uint64_t piece_bytes)
    : files_(files), cuts_(cuts), piece_bytes_(piece_bytes) {}

std::optional<Piece> PieceCutter::next() {
  for (; file_ < files_.size(); ++file_, open_ = File()) {
    if (!open_) {
      open_ = File::open_to_read(files_[file_]);
      size_ = open_.size();
      begin_ = 0;
    }
    if (begin_ < size_) {
      const uint64_t begin = std::exchange(begin_, end_of_piece(begin_));
      return Piece{.file = file_, .begin = begin, .end = begin_, .is_last = begin_ == size_};
    }
  }
  return std::nullopt;
}

uint64_t PieceCutter::end_of_piece(uint64_t begin) const {
  if (size_ - begin <= piece_bytes_) return size_;
  const uint64_t wanted = begin + piece_bytes_;
  const bool lines = is_jsonl(files_[file_]);
  if (!lines && cuts_ == text::Cuts::kAnywhere) return wanted;
  if (!lines && cuts_ == text::Cuts::kNowhere) return size_;

  // Windows overlap, since a cut is known by the characters around it.
  constexpr uint64_t kContext = 8;
  for (uint64_t at = wanted; at < size_; at += kWindowBytes) {
    const uint64_t start = at - std::min(kContext, at - begin);
    const auto window = read_range(open_, start, std::min(at + kWindowBytes, size_));
    if (lines) {
      const auto newline = window.find('\n', at - start);
      if (newline != std::string::npos) return start + newline + 1;
      continue;
    }
    if (const auto cut = text::find_safe_cut(window, at - start)) return start + *cut;
    if (at - begin > kMaxPieceBytes) {
      throw IoError(
          fmt::format("{}: no line end or space to cut at between bytes {} and {}; is it text?",
                      files_[file_].string(), wanted, at));
    }
  }
  return size_;
}

Piece first_piece(const fs::path& path, uint64_t bytes) {
  if (is_jsonl(path)) {
    PieceCutter cutter(std::span(&path, 1), text::Cuts::kAnywhere, bytes);
    return cutter.next().value_or(Piece{.is_last = true});
  }
  const auto file = File::open_to_read(path);
  const uint64_t size = file.size();
  if (size <= bytes) return {.end = size, .is_last = true};
  // A character has at most three bytes after its first; more of them are no character's.
  const auto around = read_range(file, bytes - std::min<uint64_t>(bytes, 3), bytes + 1);
  const auto start = std::find_if(around.rbegin(), around.rend(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xC0) != 0x80;
  });
  const auto back = start == around.rend() ? 0 : start - around.rbegin();
  return {.end = bytes - static_cast<uint64_t>(back)};
}

EncodedPiece encode_piece(const fs::path& path, const Piece& piece, const text::TextCodec& codec,
                          config::BadLines policy) {
  const auto file = File::open_to_read(path);
  if (piece.begin == 0) check_beginning(file, path, codec, policy);
  if (is_jsonl(path)) return JsonlPiece(codec, policy).encode(file, piece);
  return encode_txt_piece(file, piece, codec, policy);
}

}  // namespace skein::data
