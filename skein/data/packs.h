// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which samples go together, in which order, and how many steps does each epoch have?
//
// A pack is what is dealt to ranks as one: samples that share a row of a micro-batch. Epochs may
// differ in their number of packs, and so of steps.

#include <cstdint>
#include <memory>
#include <vector>

#include "skein/data/sample_set.h"

namespace skein::data {

// All calls are thread-safe and give the same answer every time. An epoch's packs hold every
// sample exactly once.
class Packs {
 public:
  virtual ~Packs() = default;

  // Of an epoch, at least 1.
  virtual int64_t count(int64_t epoch) const = 0;
  // Whether every epoch has as many.
  virtual bool is_even() const = 0;
  // Appends the ids of a pack's samples. Requires 0 <= pack < count(epoch).
  virtual void append(int64_t epoch, int64_t pack, std::vector<int64_t>& samples) const = 0;
};

// Each sample alone, in the epoch's permutation.
class SinglePacks final : public Packs {
 public:
  SinglePacks(const SampleSet& set, uint64_t seed) : set_(set), seed_(seed) {}

  int64_t count(int64_t) const override { return set_.count(); }
  bool is_even() const override { return true; }
  void append(int64_t epoch, int64_t pack, std::vector<int64_t>& samples) const override;

 private:
  SampleSet set_;
  uint64_t seed_;
};

// Epochs cut into steps of `global_batch` packs. The last step of an epoch may be short; with
// drop_last it does not exist, unless it is the epoch's only one.
class EpochSteps {
 public:
  EpochSteps(std::shared_ptr<const Packs> packs, int64_t global_batch, bool drop_last);

  // Whether every epoch has as many.
  bool are_even() const { return packs_->is_even(); }
  int64_t steps(int64_t epoch) const;
  // Of an epoch, less the dropped ones.
  int64_t packs(int64_t epoch) const;

  struct Totals {
    int64_t steps = 0;
    int64_t packs = 0;
  };
  // Of all epochs before this one.
  Totals before(int64_t epoch) const;
  // The epoch that a step, or a position in packs, lies in. Both count from 0.
  int64_t epoch_of_step(int64_t step) const;
  int64_t epoch_of_packs(int64_t packs) const;
  // Epochs that so many steps are; after whole ones a whole number.
  double epochs_of(int64_t steps) const;
  // Steps of so many epochs, of which a part rounds up. Throws UserError when they cannot be
  // counted.
  int64_t total(double epochs) const;

 private:
  struct Counted;  // the totals of epochs that differ, as far as they were asked for

  template <typename Enough, typename Look>
  auto counted(const Enough& enough, const Look& look) const;
  int64_t epoch_of(int64_t Totals::* unit, int64_t position) const;

  std::shared_ptr<const Packs> packs_;
  int64_t global_batch_;
  bool drop_last_;
  std::shared_ptr<Counted> counted_;
};

}  // namespace skein::data
