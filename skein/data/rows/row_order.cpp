// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/row_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/core/error.h"
#include "skein/core/random.h"
#include "skein/data/permutation.h"
#include "skein/data/rows/packing.h"

namespace skein::data {
namespace {

// Part of the meaning of saved positions, as is the size of a window.
constexpr uint64_t kWindowStream = 0x77696e646f77;  // "window"
constexpr int64_t kRun = 256;
// A step may lie across two windows, and a thread ahead of it in a third.
constexpr size_t kRecentWindows = 4;

}  // namespace

int64_t RowOrder::num_windows() const {
  return (set_.count() + options_.window - 1) / options_.window;
}

int64_t RowOrder::count(int64_t epoch) const {
  return packs() ? window_ends(epoch)->back() : set_.count();
}

RowOrder::Window RowOrder::arrange(int64_t epoch, int64_t number) const {
  const auto key = epoch_key(options_.seed, static_cast<uint64_t>(epoch));
  const auto all = static_cast<uint64_t>(set_.count());
  const int64_t begin = number * options_.window;
  const int64_t end = std::min(begin + options_.window, set_.count());
  std::vector<int64_t> rows, lengths;
  for (int64_t i = begin; i < end; ++i) {
    const auto place = permuted(static_cast<uint64_t>(i), all, key);
    rows.push_back(set_.sample(static_cast<int64_t>(place)));
    lengths.push_back(length_of_(rows.back()));
  }
  const auto groups = packs() ? best_fit(lengths, options_.capacity) : sorted_runs(lengths, kRun);
  Window window{.epoch = epoch, .number = number, .samples = {}, .ends = {}};
  const auto shuffle = random::mix(random::mix(key, kWindowStream), static_cast<uint64_t>(number));
  for (int64_t i = 0; i < groups.count(); ++i) {
    const auto place =
        permuted(static_cast<uint64_t>(i), static_cast<uint64_t>(groups.count()), shuffle);
    for (const int32_t item : groups.group(static_cast<int64_t>(place))) {
      window.samples.push_back(rows[static_cast<size_t>(item)]);
      if (!packs()) window.ends.push_back(std::ssize(window.samples));
    }
    if (packs()) window.ends.push_back(std::ssize(window.samples));
  }
  return window;
}

std::shared_ptr<const RowOrder::WindowEnds> RowOrder::window_ends(int64_t epoch) const {
  {
    const std::lock_guard lock(mutex_);
    const auto known = ends_.find(epoch);
    if (known != ends_.end()) return known->second;
  }
  auto ends = std::make_shared<WindowEnds>();
  for (int64_t number = 0; number < num_windows(); ++number) {
    const int64_t before = ends->empty() ? 0 : ends->back();
    ends->push_back(before + std::ssize(arrange(epoch, number).ends));
  }
  const std::lock_guard lock(mutex_);
  return ends_.emplace(epoch, std::move(ends)).first->second;
}

std::shared_ptr<const RowOrder::Window> RowOrder::window(int64_t epoch, int64_t number) const {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& recent : recent_) {
      if (recent->epoch == epoch && recent->number == number) return recent;
    }
  }
  const auto made = std::make_shared<const Window>(arrange(epoch, number));
  const std::lock_guard lock(mutex_);
  recent_.push_front(made);
  if (recent_.size() > kRecentWindows) recent_.pop_back();
  return made;
}

void RowOrder::append(int64_t epoch, int64_t pack, std::vector<int64_t>& samples) const {
  SKEIN_CHECK(0 <= pack && pack < count(epoch), fmt::format("pack {} of epoch {}", pack, epoch));
  int64_t number = pack / options_.window, begin = number * options_.window;
  if (packs()) {
    const auto ends = window_ends(epoch);
    number = std::ranges::upper_bound(*ends, pack) - ends->begin();
    begin = number == 0 ? 0 : (*ends)[static_cast<size_t>(number - 1)];
  }
  const auto found = window(epoch, number);
  const auto index = static_cast<size_t>(pack - begin);
  const int64_t first = index == 0 ? 0 : found->ends[index - 1];
  samples.insert(samples.end(), found->samples.begin() + first,
                 found->samples.begin() + found->ends[index]);
}

double RowOrder::fill(int64_t epoch) const {
  SKEIN_CHECK(packs(), "rows that are not packed fill nothing");
  int64_t tokens = 0;
  for (int64_t i = 0; i < set_.count(); ++i) tokens += length_of_(set_.sample(i));
  return static_cast<double>(tokens) / static_cast<double>(count(epoch) * options_.capacity);
}

RowOrder::LengthOf lengths_of(std::shared_ptr<const SampleSource> source) {
  return [source = std::move(source)](int64_t sample) { return source->length(sample); };
}

}  // namespace skein::data
