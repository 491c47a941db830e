// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/packs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "skein/core/error.h"
#include "skein/data/permutation.h"

namespace skein::data {
namespace {

// Numbers of steps are also computed with as doubles, which are exact up to here.
constexpr double kMostSteps = 0x1p53;
// Each epoch that differs from the others has to be packed to be counted.
constexpr double kMostUnevenEpochs = 1e5;

}  // namespace

void SinglePacks::append(int64_t epoch, int64_t pack, std::vector<int64_t>& samples) const {
  const auto place = permuted(static_cast<uint64_t>(pack), static_cast<uint64_t>(set_.count()),
                              epoch_key(seed_, static_cast<uint64_t>(epoch)));
  samples.push_back(set_.sample(static_cast<int64_t>(place)));
}

struct EpochSteps::Counted {
  std::mutex mutex;
  std::vector<Totals> ends;  // of epochs 0, 1, …: with all before them
};

EpochSteps::EpochSteps(std::shared_ptr<const Packs> packs, int64_t global_batch, bool drop_last)
    : packs_(std::move(packs)),
      global_batch_(global_batch),
      drop_last_(drop_last),
      counted_(std::make_shared<Counted>()) {}

int64_t EpochSteps::packs(int64_t epoch) const {
  const int64_t count = packs_->count(epoch);
  return drop_last_ && count > global_batch_ ? count - count % global_batch_ : count;
}

int64_t EpochSteps::steps(int64_t epoch) const {
  return (packs(epoch) + global_batch_ - 1) / global_batch_;
}

// Counts epochs until `enough` is true of all counted ones; then gives these to `look`.
template <typename Enough, typename Look>
auto EpochSteps::counted(const Enough& enough, const Look& look) const {
  const std::lock_guard lock(counted_->mutex);
  auto& ends = counted_->ends;
  while (ends.empty() || !enough(ends)) {
    const int64_t epoch = std::ssize(ends);
    const auto last = ends.empty() ? Totals{} : ends.back();
    ends.push_back({last.steps + steps(epoch), last.packs + packs(epoch)});
  }
  return look(ends);
}

int64_t EpochSteps::epoch_of(int64_t Totals::* unit, int64_t position) const {
  return counted([&](const auto& ends) { return ends.back().*unit > position; },
                 [&](const auto& ends) {
                   return std::ranges::upper_bound(ends, position, {}, unit) - ends.begin();
                 });
}

EpochSteps::Totals EpochSteps::before(int64_t epoch) const {
  if (packs_->is_even()) return {epoch * steps(0), epoch * packs(0)};
  if (epoch == 0) return {};
  return counted([&](const auto& ends) { return std::ssize(ends) >= epoch; },
                 [&](const auto& ends) { return ends[static_cast<size_t>(epoch - 1)]; });
}

int64_t EpochSteps::epoch_of_step(int64_t step) const {
  if (packs_->is_even()) return step / steps(0);
  return epoch_of(&Totals::steps, step);
}

int64_t EpochSteps::epoch_of_packs(int64_t packs) const {
  if (packs_->is_even()) return packs / this->packs(0);
  return epoch_of(&Totals::packs, packs);
}

double EpochSteps::epochs_of(int64_t done) const {
  if (done == 0) return 0;
  const int64_t epoch = epoch_of_step(done - 1);  // not the next one's, which may never begin
  const int64_t all = steps(epoch);
  return static_cast<double>(epoch * all + done - before(epoch).steps) / static_cast<double>(all);
}

int64_t EpochSteps::total(double epochs) const {
  const double whole = std::floor(epochs);
  const bool is_countable = packs_->is_even() || epochs <= kMostUnevenEpochs;
  double total = kMostSteps * 2;
  if (packs_->is_even()) {
    total = std::ceil(epochs * static_cast<double>(steps(0)));
  } else if (is_countable) {
    const auto epoch = static_cast<int64_t>(whole);
    total = static_cast<double>(before(epoch).steps);
    if (epochs > whole) total += std::ceil((epochs - whole) * static_cast<double>(steps(epoch)));
  }
  if (total <= kMostSteps) return static_cast<int64_t>(total);
  throw UserError(
      fmt::format("num_train_epochs={} of {} steps each are more steps than can be counted: give "
                  "fewer epochs, or max_steps",
                  epochs, steps(0)));
}

}  // namespace skein::data
