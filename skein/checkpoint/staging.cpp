// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/staging.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>

#include "skein/core/error.h"
#include "skein/core/log.h"

namespace skein::checkpoint {
namespace {

constexpr int64_t kAlignment = 64;  // of runs: every element type divides it
constexpr int64_t kFewSlots = 4;
// Flat memory pads parameters to 128 elements: copying so small a gap is cheaper than two copies.
constexpr int64_t kMaxGapElements = 128;
constexpr double kGiB = 1 << 30;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// The elements between the end of `left` and the beginning of `right`, where they are neighbours in
// one storage.
std::optional<int64_t> gap_between(const at::Tensor& left, const at::Tensor& right) {
  if (left.scalar_type() != right.scalar_type() || !left.is_alias_of(right)) return std::nullopt;
  const int64_t gap = right.storage_offset() - (left.storage_offset() + left.numel());
  return gap >= 0 && gap < kMaxGapElements ? std::optional(gap) : std::nullopt;
}

}  // namespace

Staging::Staging(std::shared_ptr<tensor::CopyEngine> engine, const std::atomic<bool>& stop)
    : engine_(std::move(engine)), stop_(stop), chunk_bytes_(engine_->chunk_bytes()) {
  SKEIN_CHECK(chunk_bytes_ % kAlignment == 0, "chunk size");
}

Staging::~Staging() { await_prepared(); }

Staging::Layout Staging::lay_out(const std::vector<Source>& sources) {
  Layout layout;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto& data = sources[i].data;
    SKEIN_CHECK(data.dim() == 1 && data.is_contiguous(), "a source is flat");
    const auto gap = i > 0 ? gap_between(sources[i - 1].data, data) : std::nullopt;
    if (gap) {
      auto& run = layout.runs.back().data;
      run = run.as_strided({run.numel() + *gap + data.numel()}, {1}, run.storage_offset());
    } else {
      layout.runs.push_back({data, aligned(layout.bytes)});
    }
    layout.bytes = layout.runs.back().end();
    layout.begins.push_back(layout.bytes - bytes_of(data));
  }
  return layout;
}

int64_t Staging::num_chunks() const { return (layout_.bytes + chunk_bytes_ - 1) / chunk_bytes_; }

void Staging::prepare(const std::vector<Source>& sources) {
  await_prepared();
  try {
    preparation_ = std::thread([this, bytes = lay_out(sources).bytes] {
      try {
        reserve(bytes, Wish::kAllAtOnce);
      } catch (const std::exception& error) {
        log_debug("no memory for saves yet: {}", error.what());  // start() tries again
      }
    });
  } catch (const std::system_error& error) {
    log_debug("no thread to prepare saves with: {}", error.what());
  }
}

void Staging::await_prepared() {
  if (preparation_.joinable()) preparation_.join();
}

void Staging::reserve(int64_t bytes, Wish wish) {
  const int64_t chunks = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  const int64_t allowed = wish == Wish::kAllAtOnce ? engine_->budget() / chunk_bytes_ : 0;
  const int64_t wanted =
      std::min({chunks, std::max({kFewSlots, allowed, std::ssize(slots_)}), most_slots_});
  for (int64_t i = 0; i < wanted; ++i) {
    // Chunks are full but for the last, so a slot's first chunk is its largest.
    if (!fill_slot(static_cast<size_t>(i), std::min(chunk_bytes_, bytes - i * chunk_bytes_))) break;
  }
  if (wish == Wish::kAllAtOnce) say_if_short(bytes, chunks);
}

// False when there is no more memory; there is one slot at least.
bool Staging::fill_slot(size_t index, int64_t bytes) {
  if (index < slots_.size() && slots_[index].numel() >= bytes) return true;
  if (index < slots_.size()) slots_.resize(index);  // released before others are allocated
  try {
    slots_.push_back(engine_->allocate(bytes));
    return true;
  } catch (const std::exception& error) {
    log_warning("a save has {:.1f} GiB of fast host memory: {}",
                static_cast<double>(slots_.size()) * static_cast<double>(chunk_bytes_) / kGiB,
                error.what());
  }
  if (slots_.empty()) slots_.push_back(at::empty({bytes}, at::TensorOptions(at::kByte)));
  most_slots_ = std::ssize(slots_);  // not tried again at every save
  return false;
}

void Staging::say_if_short(int64_t bytes, int64_t chunks) {
  const auto slots = static_cast<int64_t>(slots_.size());
  if (slots >= chunks || said_short_) return;
  said_short_ = true;
  log_warning(
      "a save copies {:.1f} GiB to host memory, of which {:.1f} GiB are used at a time ({:.1f} GiB "
      "of what is left are this rank's): training waits while the rest is written",
      static_cast<double>(bytes) / kGiB,
      static_cast<double>(slots) * static_cast<double>(chunk_bytes_) / kGiB,
      static_cast<double>(engine_->budget()) / kGiB);
}

std::vector<Piece> Staging::start(const std::vector<Source>& sources, Wish wish, bool held) {
  const c10::NoGradGuard no_grad;
  await_prepared();
  layout_ = lay_out(sources);
  reserve(layout_.bytes, wish);
  auto pieces = cut_pieces(sources);
  next_run_ = 0;
  marks_.clear();
  closed_ = false;
  confirmed_ = !held;
  engine_->begin();
  const auto at_once = std::min(num_chunks(), static_cast<int64_t>(slots_.size()));
  for (int64_t i = 0; i < at_once; ++i) issue_next();
  copying_ = std::ssize(marks_) < num_chunks() || (num_chunks() > 0 && marks_.back());
  return pieces;
}

std::vector<Piece> Staging::cut_pieces(const std::vector<Source>& sources) {
  std::vector<Piece> pieces;
  chunk_of_piece_.clear();
  for (size_t i = 0; i < sources.size(); ++i) {
    int64_t at = layout_.begins[i];
    const int64_t begin = at, end = at + bytes_of(sources[i].data);
    while (at < end) {
      const int64_t chunk = at / chunk_bytes_, offset = at % chunk_bytes_;
      const int64_t count = std::min(end - at, chunk_bytes_ - offset);
      const auto& slot = slots_[static_cast<size_t>(chunk) % slots_.size()];
      pieces.push_back({sources[i].file,
                        sources[i].offset + static_cast<uint64_t>(at - begin),
                        {static_cast<const std::byte*>(slot.const_data_ptr()) + offset,
                         static_cast<size_t>(count)}});
      chunk_of_piece_.push_back(chunk);
      at += count;
    }
  }
  return pieces;
}

// By the caller of start(), then by the writer.
void Staging::issue_next() {
  const auto chunk = static_cast<int64_t>(marks_.size());
  const int64_t begin = chunk * chunk_bytes_, end = begin + chunk_bytes_;
  const auto& slot = slots_[static_cast<size_t>(chunk) % slots_.size()];
  for (; next_run_ < layout_.runs.size(); ++next_run_) {
    const auto& run = layout_.runs[next_run_];
    const int64_t first = std::max(begin, run.begin), last = std::min(end, run.end());
    const int64_t width = run.data.element_size();
    if (first < last) {
      engine_->copy(slot.narrow(0, first - begin, last - first).view(run.data.scalar_type()),
                    run.data.narrow(0, (first - run.begin) / width, (last - first) / width));
    }
    if (run.end() > end) break;
  }
  const std::lock_guard lock(mutex_);
  marks_.push_back(engine_->mark());
  changed_.notify_all();
}

bool Staging::issued_within(std::chrono::milliseconds longest) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, longest,
                           [&] { return closed_ || std::ssize(marks_) == num_chunks(); });
}

void Staging::before_update() {
  if (!copying_) return;
  copying_ = false;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || std::ssize(marks_) == num_chunks(); });
  if (!marks_.empty() && marks_.back()) marks_.back()->order_caller();
}

void Staging::confirm() {
  const std::lock_guard lock(mutex_);
  confirmed_ = true;
  changed_.notify_all();
}

void Staging::await_confirmed() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return confirmed_; })) {
    if (stop_.load()) throw CommError("the run is ending");
  }
}

void Staging::await(size_t piece) {
  if (piece + 1 == chunk_of_piece_.size()) await_confirmed();
  const tensor::CopyEngine::Mark* mark = nullptr;
  {
    const std::lock_guard lock(mutex_);
    mark = marks_.at(static_cast<size_t>(chunk_of_piece_[piece])).get();
  }
  while (mark != nullptr && !mark->reached()) {
    if (stop_.load()) throw CommError("the run is ending");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Staging::written(size_t piece) {
  // Chunks before this one are free.
  const int64_t next =
      piece + 1 == chunk_of_piece_.size() ? num_chunks() : chunk_of_piece_[piece + 1];
  while (std::ssize(marks_) < std::min(num_chunks(), next + std::ssize(slots_))) issue_next();
}

void Staging::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace skein::checkpoint
