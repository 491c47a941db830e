// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/encode_files.h"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "skein/core/error.h"
#include "skein/core/stop_signals.h"
#include "skein/data/text_pieces.h"

namespace skein::data {
namespace {

constexpr size_t kBadLinesShown = 5;
constexpr int64_t kPiecesPerWorker = 3;

struct Result {
  Piece piece;
  EncodedPiece encoded;
  std::exception_ptr failure;
};

// Hands pieces to workers and their results, in order, to one reader.
class Pipeline {
 public:
  Pipeline(std::span<const fs::path> files, const text::TextCodec& codec,
           const EncodeFilesOptions& options)
      : files_(files),
        codec_(codec),
        options_(options),
        cutter_(files, codec.cuts(), options.piece_bytes) {
    for (int i = 0; i < options.threads; ++i) {
      try {
        workers_.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        if (workers_.empty()) throw;
        break;  // no further threads to be had: fewer do
      }
    }
  }

  ~Pipeline() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
  }

  // The next result in order; absent after the last.
  std::optional<Result> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return results_.contains(read_) || (ended_ && read_ == issued_); });
    const auto found = results_.find(read_);
    if (found == results_.end()) return std::nullopt;
    auto result = std::move(found->second);
    results_.erase(found);
    ++read_;
    changed_.notify_all();
    return result;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      const int64_t ahead = kPiecesPerWorker * options_.threads;
      changed_.wait(lock, [&] { return ended_ || issued_ - read_ < ahead; });
      if (ended_) return;
      const int64_t number = issued_++;
      Result result;
      try {
        const auto piece = cutter_.next();
        if (!piece) {
          --issued_;
          ended_ = true;
          changed_.notify_all();
          return;
        }
        result.piece = *piece;
        lock.unlock();
        result.encoded = encode_piece(files_[piece->file], *piece, codec_, options_.bad_lines);
      } catch (...) {
        result.failure = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      ended_ = ended_ || result.failure;
      results_.emplace(number, std::move(result));
      changed_.notify_all();
    }
  }

  std::span<const fs::path> files_;
  const text::TextCodec& codec_;
  const EncodeFilesOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  PieceCutter cutter_;
  std::map<int64_t, Result> results_;
  int64_t issued_ = 0, read_ = 0;
  bool ended_ = false;  // no further piece is started
  std::vector<std::jthread> workers_;
};

// Turns lines of pieces into lines of files.
class Totals {
 public:
  Totals(std::span<const fs::path> files, config::BadLines policy)
      : files_(files), policy_(policy) {}

  void add(const Piece& piece, const EncodedPiece& encoded) {
    for (const auto& bad : encoded.bad_lines) {
      auto text =
          fmt::format("{}:{}: {}", files_[piece.file].string(), lines_ + bad.line + 1, bad.reason);
      if (policy_ == config::BadLines::kStop) {
        throw IoError(text + " (bad_lines=skip leaves such lines out)");
      }
      if (totals_.first_bad_lines.size() < kBadLinesShown) {
        totals_.first_bad_lines.push_back(std::move(text));
      }
    }
    totals_.bad_lines += static_cast<uint64_t>(encoded.num_bad_lines);
    totals_.documents += static_cast<uint64_t>(encoded.documents);
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
  Pipeline pipeline(files, codec, options);
  while (const auto result = pipeline.next()) {
    end_if_stop_waits();
    if (result->failure) std::rethrow_exception(result->failure);
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
