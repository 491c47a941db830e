// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/encode_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/ordered_work.h"
#include "skein/core/stop_signals.h"
#include "skein/data/rows/preference_row.h"
#include "skein/data/rows/prompt_row.h"
#include "skein/data/rows/row_columns.h"
#include "skein/data/rows/row_reader.h"

namespace skein::data {
namespace {

constexpr size_t kBadRowsShown = 5;

// Rows of one file that a worker takes at once.
struct Piece {
  size_t file = 0;
  fs::path path;  // of the file
  std::vector<RawRow> rows;
  uint64_t bytes = 0;
};

// Hands out the pieces of all files in order. They follow from the files alone.
class PieceReader {
 public:
  PieceReader(std::span<const fs::path> files, const EncodeRowsOptions& options)
      : files_(files), piece_bytes_(options.piece_bytes), most_bytes_(options.most_bytes) {}

  std::optional<Piece> next() {
    for (; file_ < files_.size(); ++file_, reader_.reset()) {
      if (!reader_) reader_.emplace(files_[file_]);
      Piece piece{.file = file_, .path = files_[file_], .rows = {}};
      const uint64_t begin = reader_->bytes_read();
      const uint64_t room = most_bytes_ - std::min(most_bytes_, begin);
      for (RawRow row; piece.bytes < std::min(piece_bytes_, room) && reader_->next(row);) {
        piece.rows.push_back(std::move(row));
        piece.bytes = reader_->bytes_read() - begin;
      }
      if (!piece.rows.empty()) return piece;
    }
    return std::nullopt;
  }

 private:
  std::span<const fs::path> files_;
  uint64_t piece_bytes_, most_bytes_;
  size_t file_ = 0;
  std::optional<RowReader> reader_;  // of files_[file_]
};

struct BadRow {
  uint64_t number = 0;
  std::string reason;
  bool has_unknown_columns = false;
};

struct EncodedPiece {
  size_t file = 0;
  uint64_t bytes = 0;
  std::vector<EncodedRow> rows;
  uint64_t num_bad = 0;
  std::vector<BadRow> bad;  // the first few
};

// Of lists and lines the space around a row is nobody's.
std::string without_space(std::string_view json) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto first = json.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return "";
  return std::string(json.substr(first, json.find_last_not_of(kSpace) + 1 - first));
}

// A document is nothing that a template would have words for.
bool is_plain_text(const Row& row, RowKind kind) {
  return row.kind == Row::Kind::kPromptCompletion ||
         (kind == RowKind::kPrompts && row.kind == Row::Kind::kText);
}

EncodedRow encode_row(const RawRow& row, const Piece& piece, const RowEncoder& encoder) try {
  if (row.is_too_long) {
    throw IoError(fmt::format("the row is longer than {} MiB", kMaxRowBytes >> 20));
  }
  EncodedRow result{.tokens = {}, .file = piece.file, .number = row.number};
  const auto encode = [&](const Row& parsed) {
    result.is_plain = is_plain_text(parsed, encoder.kind);
    auto tokens = encoder.encode(parsed);
    SKEIN_CHECK(tokens.ids.size() == tokens.trained.size(),
                "an encoder says of each id what it is");
    return tokens;
  };
  switch (encoder.kind) {
    case RowKind::kRows:
      result.tokens = encode(parse_row(row.json));
      break;
    case RowKind::kPairs: {
      const auto pair = parse_preference(row.json);
      result.tokens = encode(pair.chosen);
      result.rejected = encode(pair.rejected);
      result.margin = pair.margin;
      break;
    }
    case RowKind::kFeedback: {
      const auto judged = parse_feedback(row.json);
      result.tokens = encode(judged.row);
      result.desirable = judged.desirable;
      break;
    }
    case RowKind::kPrompts:
      result.tokens = encode(parse_prompt(row.json));
      if (result.tokens.ids.empty()) throw IoError("the prompt is empty");
      result.json = without_space(row.json);
      break;
  }
  return result;
} catch (const UserError& error) {
  throw UserError(fmt::format("{}:{}: {}", piece.path.string(), row.number, error.what()));
}

// With kStop, ends at the first bad row.
EncodedPiece encode_piece(const Piece& piece, const RowEncoder& encoder, config::BadLines policy) {
  EncodedPiece result{.file = piece.file, .bytes = piece.bytes, .rows = {}, .bad = {}};
  for (const auto& row : piece.rows) {
    try {
      result.rows.push_back(encode_row(row, piece, encoder));
    } catch (const IoError& error) {
      ++result.num_bad;
      const bool unknown = dynamic_cast<const UnknownColumns*>(&error) != nullptr;
      if (result.bad.size() < kBadRowsShown) {
        result.bad.push_back({row.number, error.what(), unknown});
      }
      if (policy == config::BadLines::kStop) break;
    }
  }
  return result;
}

void count_bad_rows(const EncodedPiece& piece, const fs::path& path, config::BadLines policy,
                    EncodeRowsTotals& totals) {
  for (const auto& bad : piece.bad) {
    auto text = fmt::format("{}:{}: {}", path.string(), bad.number, bad.reason);
    if (policy == config::BadLines::kStop) {
      // Where even the first has unknown columns, nothing would be left.
      const bool skipping_helps = totals.rows > 0 || !bad.has_unknown_columns;
      throw IoError(skipping_helps ? text + " (bad_lines=skip leaves such rows out)" : text);
    }
    if (totals.first_bad_rows.size() < kBadRowsShown) {
      totals.first_bad_rows.push_back(std::move(text));
    }
  }
  totals.bad_rows += piece.num_bad;
}

}  // namespace

EncodeRowsTotals encode_rows(std::span<const fs::path> files, const RowEncoder& encoder,
                             const EncodeRowsOptions& options,
                             const std::function<void(const EncodedRow&)>& write) {
  EncodeRowsTotals totals;
  PieceReader reader(files, options);
  OrderedWork<Piece, EncodedPiece> work(
      [&] { return reader.next(); },
      [&](const Piece& piece) { return encode_piece(piece, encoder, options.bad_lines); },
      options.threads);
  while (const auto piece = work.next()) {
    end_if_stop_waits();
    for (const auto& row : piece->rows) write(row);
    totals.rows += piece->rows.size();
    count_bad_rows(*piece, files[piece->file], options.bad_lines, totals);
    if (options.on_bytes) options.on_bytes(piece->bytes);
  }
  return totals;
}

}  // namespace skein::data
