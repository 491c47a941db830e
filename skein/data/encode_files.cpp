// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/encode_files.h"

#include <fmt/format.h>

#include "skein/core/error.h"
#include "skein/core/ordered_work.h"
#include "skein/core/stop_signals.h"
#include "skein/data/text_pieces.h"

namespace skein::data {
namespace {

constexpr size_t kBadLinesShown = 5;

struct Result {
  Piece piece;
  EncodedPiece encoded;
};

// Turns lines of pieces into lines of files.
class Totals {
 public:
  Totals(std::span<const fs::path> files, config::BadLines policy)
      : files_(files), policy_(policy) {}

  void add(const Piece& piece, const EncodedPiece& encoded) {
    const auto documents = static_cast<uint64_t>(encoded.documents);
    for (const auto& bad : encoded.bad_lines) {
      auto text =
          fmt::format("{}:{}: {}", files_[piece.file].string(), lines_ + bad.line + 1, bad.reason);
      if (policy_ == config::BadLines::kStop) {
        // Where not even one line before it has a text, nothing would be left.
        const bool skipping_helps = bad.has_text || totals_.documents + documents > 0;
        throw IoError(skipping_helps ? text + " (bad_lines=skip leaves such lines out)" : text);
      }
      if (totals_.first_bad_lines.size() < kBadLinesShown) {
        totals_.first_bad_lines.push_back(std::move(text));
      }
    }
    totals_.bad_lines += static_cast<uint64_t>(encoded.num_bad_lines);
    totals_.documents += documents;
    lines_ = piece.is_last ? 0 : lines_ + encoded.lines;
  }

  EncodeTotals take() { return std::move(totals_); }

 private:
  std::span<const fs::path> files_;
  config::BadLines policy_;
  EncodeTotals totals_;
  int64_t lines_ = 0;  // of the file, before the piece
};

}  // namespace

EncodeTotals encode_files(std::span<const fs::path> files, const text::TextCodec& codec,
                          const EncodeFilesOptions& options,
                          const std::function<void(std::span<const uint32_t>)>& write) {
  Totals totals(files, options.bad_lines);
  PieceCutter cutter(files, codec.cuts(), options.piece_bytes);
  OrderedWork<Piece, Result> work(
      [&] { return cutter.next(); },
      [&](const Piece& piece) {
        return Result{piece, encode_piece(files[piece.file], piece, codec, options.bad_lines)};
      },
      options.threads);
  while (const auto result = work.next()) {
    end_if_stop_waits();
    totals.add(result->piece, result->encoded);
    write(result->encoded.tokens);
    if (options.on_bytes) options.on_bytes(result->piece.end - result->piece.begin);
  }
  return totals.take();
}

EncodedBeginning encode_beginning(const fs::path& file, const text::TextCodec& codec,
                                  config::BadLines bad_lines, uint64_t bytes) {
  const auto piece = first_piece(file, bytes);
  const auto encoded = encode_piece(file, piece, codec, bad_lines);
  Totals(std::span(&file, 1), bad_lines).add(piece, encoded);
  return {.bytes = piece.end, .tokens = encoded.tokens.size()};
}

}  // namespace skein::data
