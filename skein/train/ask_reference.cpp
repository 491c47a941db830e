// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/train/ask_reference.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "skein/board/board.h"
#include "skein/comm/share_numbers.h"
#include "skein/config/syntax/values.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/log.h"
#include "skein/core/progress.h"
#include "skein/data/cache_entry.h"
#include "skein/data/loader.h"
#include "skein/train/stop_agreement.h"

namespace skein::train {
namespace {

using algorithms::Role;

// Which reference, and in which numbers it is computed.
std::string name_of(const Questions& questions) {
  const auto& [config, architecture, identity, dtype, samples] = questions;
  std::string name = identity.reference.digest;
  if (name.empty()) {
    name = fmt::format("{} {} bits {} {}", identity.tuning.base_digest, digest(architecture.source),
                       config::to_text(config.model.quantization_bit),
                       config.model.double_quantization);
  }
  return fmt::format("reference {} dtype {} ld_alpha {} shares {}", name, dtype_word(dtype),
                     config.preference.ld_alpha, samples.share_prompts);
}

fs::path path_of(const Questions& questions, const data::ChosenSamples& chosen) {
  return data::cache_folder(questions.config.data) /
         (looks_key(chosen, name_of(questions)) + ".reference");
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
      const auto batch_of = [&](const data::SampleSource& rows) {
        const bool shares = questions.samples.share_prompts;
        return tensor::to_device(data::make_run(rows, samples, 0, shares), world.device);
      };
      const auto own = batch_of(source);
      tensor::Batch other;
      if (chosen.mismatched) other = batch_of(*chosen.mismatched);
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
      if (stop.answer())
        throw Stopped(
            "stopped while the reference was asked: nothing is kept of it yet, and the same "
            "command asks again");
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
    comm::share_numbers(numbers, world.group);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!is_asked[i / static_cast<size_t>(each)]) {
        numbers[i] = std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
  return looks;
}

// Nothing can be compared with such numbers, and none of them is kept.
void require_numbers(const SplitLooks& looks, const data::ChosenSamples& chosen,
                     const std::string& reference) {
  const auto each = static_cast<size_t>(chosen.source->documents_per_sample());
  for (const auto& numbers : looks) {
    for (int64_t i = 0; !numbers.empty() && i < chosen.set.count(); ++i) {
      const auto sample = chosen.set.sample(i);
      const auto own = std::span(numbers).subspan(static_cast<size_t>(sample) * each, each);
      if (std::ranges::all_of(own, [](double value) { return std::isfinite(value); })) continue;
      throw IoError(fmt::format(
          "the reference {} gives no finite number for sample {} ({}): are its weights damaged, or "
          "too large for the run's dtype?",
          reference, sample, own.front()));
    }
  }
}

// This run has them in memory: a folder that takes no file costs the next one an hour, not this
// one.
void keep_file(const fs::path& path, const SplitLooks& looks) try {
  make_directories(path.parent_path());
  write_looks(path, looks);
} catch (const IoError& error) {
  log_warning("what the reference says is not kept, and the next run asks again: {}", error.what());
}

}  // namespace

std::optional<KeptLooks> find_looks(const Questions& questions, World& world) {
  KeptLooks kept;
  std::vector<std::string> places;
  const auto find = [&](data::Split split, const data::ChosenSamples& chosen) {
    const auto path = path_of(questions, chosen);
    auto looks = read_looks(path);
    const bool is_there = world.group.sum(int64_t{looks.empty()}) == 0;
    kept.set(split, std::move(looks));
    places.push_back(path.string());
    return is_there;
  };
  const auto& samples = questions.samples;
  const bool train = find(data::Split::kTrain, samples.train);
  const bool eval = !samples.eval || find(data::Split::kEval, *samples.eval);
  if (!train || !eval) return std::nullopt;
  if (world.is_first()) {
    log_info("what the reference says is kept in {}", fmt::join(places, " and "));
  }
  return kept;
}

KeptLooks ask_reference(const Questions& questions, const algorithms::Algorithm& algorithm,
                        const Onlookers& onlookers, World& world) {
  const at::NoGradGuard no_grad;
  KeptLooks kept;
  const auto keep = [&](data::Split split, const data::ChosenSamples& chosen) {
    auto looks = ask(questions, chosen, algorithm, onlookers, world);
    const auto& folder = questions.identity.reference.folder;
    require_numbers(looks, chosen, folder.empty() ? "of the model without adapters" : folder);
    if (world.local_rank == 0) {
      keep_file(path_of(questions, chosen), looks);
    }
    kept.set(split, std::move(looks));
  };
  const auto& samples = questions.samples;
  keep(data::Split::kTrain, samples.train);
  if (samples.eval) keep(data::Split::kEval, *samples.eval);
  return kept;
}

}  // namespace skein::train
