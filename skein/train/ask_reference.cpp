// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/ask_reference.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "skein/board/board.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/progress.h"
#include "skein/data/cache_entry.h"
#include "skein/data/loader.h"
#include "skein/train/stop_agreement.h"

namespace skein::train {
namespace {

using algorithms::Role;

// Which reference, in which numbers.
std::string name_of(const Questions& questions) {
  const auto& identity = questions.identity;
  const auto& own = identity.reference.digest;
  return fmt::format("reference {} dtype {} ld_alpha {}",
                     own.empty() ? identity.tuning.base_digest : own, dtype_word(questions.dtype),
                     questions.config.preference.ld_alpha);
}

// The samples of a split, dealt to ranks in runs of so many; all ranks ask equally often.
class Dealing {
 public:
  Dealing(const data::SampleSet& set, int64_t rows, const World& world)
      : set_(set), rows_(rows), rank_(world.group.rank()), size_(world.group.size()) {}

  int64_t num_batches() const { return (set_.count() + rows_ * size_ - 1) / (rows_ * size_); }
  std::vector<int64_t> samples(int64_t batch) const {
    const int64_t begin = std::min((batch * size_ + rank_) * rows_, set_.count());
    const int64_t end = std::min(begin + rows_, set_.count());
    std::vector<int64_t> samples;
    for (int64_t i = begin; i < end; ++i) samples.push_back(set_.sample(i));
    return samples;
  }

 private:
  const data::SampleSet& set_;
  int64_t rows_, rank_, size_;
};

SplitLooks ask(const Questions& questions, const data::ChosenSamples& chosen,
               const algorithms::Algorithm& algorithm, const Onlookers& onlookers, World& world) {
  const auto passes = algorithm.passes();
  const auto& source = *chosen.source;
  const auto each = source.documents_per_sample();
  const auto all = static_cast<size_t>(source.count() * each);
  // Sums over ranks bring every number to all of them: each is of one rank alone.
  SplitLooks looks(passes.size());
  for (size_t pass = 0; pass < passes.size(); ++pass) {
    if (passes[pass].role == Role::kReference) looks[pass].assign(all, 0);
  }
  const Dealing dealing(chosen.set, questions.config.eval.per_device_eval_batch_size, world);
  std::optional<Progress> progress;
  if (world.is_first()) {
    progress.emplace("asking the reference", static_cast<uint64_t>(dealing.num_batches()),
                     "batches");
  }
  StopAgreement stop(world.group);
  onlookers.while_held([&] {
    for (int64_t batch = 0; batch < dealing.num_batches(); ++batch) {
      board::report_progress(fmt::format("reference of batch {}", batch + 1));
      const auto samples = dealing.samples(batch);
      const auto own = tensor::to_device(data::make_run(source, samples, 0), world.device);
      tensor::Batch other;
      if (chosen.mismatched) {
        other = tensor::to_device(data::make_run(*chosen.mismatched, samples, 0), world.device);
      }
      for (size_t pass = 0; pass < passes.size(); ++pass) {
        if (passes[pass].role != Role::kReference) continue;
        const bool is_own = passes[pass].rows == algorithms::Rows::kOwn;
        const auto seen = onlookers.look(pass, is_own ? own : other).cpu();
        const auto* values = seen.data_ptr<double>();
        for (size_t i = 0; i < samples.size(); ++i) {
          for (int64_t j = 0; j < each; ++j) {
            looks[pass][static_cast<size_t>(samples[i] * each + j)] =
                values[static_cast<int64_t>(i) * each + j];
          }
        }
      }
      if (progress) progress->add(1);
      stop.ask(world.stop_requested && world.stop_requested());
      if (stop.answer()) throw Stopped("stopped while the reference was asked");
    }
  });
  stop.finish();
  board::report_progress("");
  std::vector<bool> is_asked(static_cast<size_t>(source.count()));
  for (int64_t i = 0; i < chosen.set.count(); ++i) {
    is_asked[static_cast<size_t>(chosen.set.sample(i))] = true;
  }
  for (auto& numbers : looks) {
    if (numbers.empty()) continue;
    numbers = world.group.sum(numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!is_asked[i / static_cast<size_t>(each)]) {
        numbers[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
  return looks;
}

// What this rank finds kept counts only where all have it.
SplitLooks looks_of(const Questions& questions, const data::ChosenSamples& chosen,
                    const algorithms::Algorithm& algorithm, const Onlookers& onlookers,
                    World& world) {
  const auto path = data::cache_folder(questions.config.data) /
                    (looks_key(chosen, name_of(questions)) + ".reference");
  auto looks = questions.config.data.overwrite_cache ? SplitLooks() : read_looks(path);
  if (world.group.sum(int64_t{looks.empty()}) == 0) {
    if (world.is_first()) log_info("what the reference says is kept in {}", path.string());
    return looks;
  }
  looks = ask(questions, chosen, algorithm, onlookers, world);
  if (world.local_rank == 0) {
    data::explain_storing([&] {
      make_directories(path.parent_path());
      write_looks(path, looks);
    });
  }
  return looks;
}

}  // namespace

KeptLooks ask_reference(const Questions& questions, const algorithms::Algorithm& algorithm,
                        const Onlookers& onlookers, World& world) {
  const at::NoGradGuard no_grad;
  const auto& samples = questions.samples;
  KeptLooks kept;
  kept.set(data::Split::kTrain, looks_of(questions, samples.train, algorithm, onlookers, world));
  if (samples.eval) {
    kept.set(data::Split::kEval, looks_of(questions, *samples.eval, algorithm, onlookers, world));
  }
  return kept;
}

}  // namespace skein::train
