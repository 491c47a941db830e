// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The mean over a group's validation rows is linear: a training row's mean cosine with them is its
// inner product with the mean of the normalised rows, over its length. So a group is held as that
// one row, and a training row costs one inner product for each group.
#include "skein/gradient_features/files/score.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/core/stop_signals.h"
#include "skein/gradient_features/files/collection.h"
#include "skein/gradient_features/files/dot_products.h"
#include "skein/gradient_features/files/row_reader.h"

namespace skein::gradient_features {
namespace {

constexpr double kLeastLength = 1e-12;  // torch.nn.functional.normalize's

struct Collection {
  fs::path folder;
  CollectionFacts facts;
};

std::vector<Collection> read_all(const std::vector<fs::path>& folders) {
  std::vector<Collection> all;
  for (const auto& folder : folders) all.push_back({folder, read_collection(folder)});
  return all;
}

// They have looked at all headers.
std::vector<RowReader> open_all(const std::vector<fs::path>& folders, int threads) {
  std::vector<RowReader> readers;
  for (const auto& folder : folders) readers.emplace_back(folder, threads);
  return readers;
}

// Both must say the same; `why` follows the two values.
void require_equal(const Collection& one, const Collection& other, const char* key,
                   const std::pair<std::string_view, std::string_view>& values, const char* why) {
  if (values.first == values.second) return;
  throw UserError(fmt::format("{} has {} {}, {} has {}: {}", one.folder.string(), key, values.first,
                              other.folder.string(), values.second, why));
}

// The same for digests, whose letters say nothing.
void require_same(const Collection& one, const Collection& other, const char* key, bool is_same,
                  const char* why) {
  if (is_same) return;
  throw UserError(fmt::format("{} and {} cannot be compared: {}; {}", one.folder.string(),
                              other.folder.string(),
                              difference_in_words(key, one.facts, other.facts), why));
}

void check_pair(const Collection& train, const Collection& validation) {
  const auto &t = train.facts, &v = validation.facts;
  require_equal(train, validation, "info_type", {word_of(t.info_type), word_of(v.info_type)},
                "collect both with the same --info_type");
  if (t.info_type == InfoType::kLoss) {
    throw UserError(
        fmt::format("{} holds losses, one number a sample, whose cosines are all 1: score rows "
                    "of --info_type grads or reps",
                    train.folder.string()));
  }
  require_equal(train, validation, "projection", {word_of(t.projection), word_of(v.projection)},
                "rows of different projections cannot be compared");
  if (t.projection == ProjectionKind::kFactorised) {
    require_equal(train, validation, "dimension",
                  {fmt::format("{}", t.dimension()), fmt::format("{}", v.dimension())},
                  "of a factorised projection no part of a row is a row: collect both with the "
                  "same --gradient_projection_dimension");
  }
  require_same(train, validation, "projection_digest", t.projection_digest == v.projection_digest,
               "collect both with the same seed and --parameters");
  require_same(train, validation, "model_digest", t.model_digest == v.model_digest,
               "rows of one checkpoint come from the same weights; are the folders in the same "
               "order?");
}

// Collections of several checkpoints are of the same samples.
void check_same_samples(const std::vector<Collection>& all) {
  for (const auto& other : all) {
    const auto &a = all.front().facts, &b = other.facts;
    require_equal(all.front(), other, "num_samples",
                  {fmt::format("{}", a.num_samples), fmt::format("{}", b.num_samples)},
                  "the collections of all checkpoints are of the same samples");
    require_same(all.front(), other, "data_digest", a.data_digest == b.data_digest,
                 "the collections of all checkpoints are of the same samples");
  }
}

// Scores of several checkpoints are sums of like numbers.
void check_same_kind(const std::vector<Collection>& all) {
  for (const auto& other : all) {
    const auto &a = all.front().facts, &b = other.facts;
    constexpr auto kWhy = "collect all checkpoints' rows alike";
    require_equal(all.front(), other, "gradient_type",
                  {word_of(a.gradient_type), word_of(b.gradient_type)}, kWhy);
    if (a.gradient_type != GradientType::kAdam) continue;
    require_equal(all.front(), other, "adam_form", {word_of(a.adam_form), word_of(b.adam_form)},
                  kWhy);
  }
}

bool offers(const Collection& collection, int64_t dimension) {
  return std::ranges::count(collection.facts.dimensions, dimension) > 0;
}

// Of a dense projection every beginning of a row is a row.
bool can_give(const Collection& collection, int64_t dimension) {
  const auto& facts = collection.facts;
  return offers(collection, dimension) ||
         (facts.projection == ProjectionKind::kDense && dimension < facts.dimension());
}

// The largest that somebody was asked for and all can give, or the one that is asked for now.
int64_t choose_dimension(const std::vector<Collection>& all, std::optional<int64_t> asked) {
  std::set<int64_t, std::greater<>> offered;
  for (const auto& collection : all) {
    offered.insert(collection.facts.dimensions.begin(), collection.facts.dimensions.end());
  }
  const auto in_all = [&](int64_t dimension) {
    return std::ranges::all_of(all, [&](const auto& c) { return can_give(c, dimension); });
  };
  if (asked && offered.contains(*asked) && in_all(*asked)) return *asked;
  // The one that cannot give it is to blame before those whose rows only begin with it.
  for (const auto gives : {can_give, offers}) {
    for (const auto& collection : all) {
      if (!asked || gives(collection, *asked)) continue;
      throw UserError(fmt::format("dimension {} is not offered by {}: it has {}", *asked,
                                  collection.folder.string(),
                                  fmt::join(collection.facts.dimensions, ", ")));
    }
  }
  const auto found = std::ranges::find_if(offered, in_all);
  if (found != offered.end()) return *found;
  const auto& first = all.front();
  const auto& other = *std::ranges::find_if(
      all, [&](const auto& c) { return c.facts.dimensions != first.facts.dimensions; });
  throw UserError(fmt::format("the collections have no dimension in common: {} has {}, {} has {}",
                              first.folder.string(), fmt::join(first.facts.dimensions, ", "),
                              other.folder.string(), fmt::join(other.facts.dimensions, ", ")));
}

std::vector<double> normalised(std::vector<double> weights, size_t count) {
  if (weights.size() != count) {
    throw UserError(fmt::format("{} weights for {} checkpoints", weights.size(), count));
  }
  double largest = 0, sum = 0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight < 0) {
      throw UserError(fmt::format("weight {}: expected a number from 0 on", weight));
    }
    largest = std::max(largest, weight);
  }
  if (!(largest > 0)) throw UserError("the weights of all checkpoints are 0");
  for (double& weight : weights) {  // by the largest first: the sum of huge ones is infinite
    weight /= largest;
    sum += weight;
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

struct Groups {
  std::vector<std::string> names;  // by first appearance
  std::vector<size_t> of_sample;
};

Groups group_samples(const std::vector<std::string>& words, const Collection& validation) {
  const auto samples = static_cast<size_t>(validation.facts.num_samples);
  if (words.empty()) return {.names = {"all"}, .of_sample = std::vector<size_t>(samples, 0)};
  if (words.size() != samples) {
    throw UserError(fmt::format("{} groups are named for the {} validation samples of {}",
                                words.size(), samples, validation.folder.string()));
  }
  Groups groups;
  std::map<std::string, size_t> places;
  for (const auto& word : words) {
    const auto [found, is_new] = places.emplace(word, groups.names.size());
    if (is_new) groups.names.push_back(word);
    groups.of_sample.push_back(found->second);
  }
  return groups;
}

// The scores of all groups can be held.
void check_sizes(int64_t samples, size_t num_groups) {
  constexpr int64_t kMostTotals = int64_t{1} << 34;
  if (samples <= kMostTotals / static_cast<int64_t>(num_groups)) return;
  throw UserError(fmt::format(
      "scores of {} samples in {} groups are more than can be held ({}): name fewer groups",
      samples, num_groups, kMostTotals));
}

double length_of(std::span<const float> row) {
  double squares = 0;
  for (const float value : row) squares += static_cast<double>(value) * value;
  return std::max(std::sqrt(squares), kLeastLength);
}

// For each group, the mean of its validation rows, each divided by its length.
std::vector<float> group_means(const Collection& validation, RowReader& reader,
                               const Groups& groups, int64_t dimension) {
  const auto columns = static_cast<size_t>(dimension);
  std::vector<double> sums(groups.names.size() * columns);
  std::vector<int64_t> counts(groups.names.size());
  const auto whole = static_cast<size_t>(reader.facts().dimension());
  while (const auto block = reader.next()) {
    for (size_t i = 0; i < block->samples.size(); ++i) {
      const auto group = groups.of_sample[static_cast<size_t>(block->samples[i])];
      const auto row = block->rows.subspan(i * whole, columns);
      const double factor = 1 / length_of(row);
      double* sum = sums.data() + group * columns;
      for (size_t c = 0; c < columns; ++c) sum[c] += factor * row[c];
      ++counts[group];
    }
  }
  for (size_t group = 0; group < counts.size(); ++group) {
    if (counts[group] > 0) continue;
    throw UserError(fmt::format("group '{}' has no validation sample with a row in {}",
                                shown(groups.names[group]), validation.folder.string()));
  }
  std::vector<float> means(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    means[i] = static_cast<float>(sums[i] / static_cast<double>(counts[i / columns]));
  }
  return means;
}

// By sample and group; NaN marks a sample that has no row.
class Totals {
 public:
  Totals(int64_t samples, size_t groups)
      : groups_(groups), values_(static_cast<size_t>(samples) * groups) {}

  std::span<float> of(int64_t sample) {
    return std::span(values_).subspan(static_cast<size_t>(sample) * groups_, groups_);
  }
  void leave_out(int64_t sample) {
    std::ranges::fill(of(sample), std::numeric_limits<float>::quiet_NaN());
  }

 private:
  size_t groups_;
  std::vector<float> values_;
};

// One checkpoint: what its rows add to the totals.
struct Checkpoint {
  const Collection& train;
  RowReader& rows;
  std::vector<float> means;  // of the groups
  double weight = 0;
};

void add_block(const ReadBlock& block, const Checkpoint& checkpoint, int64_t dimension, int threads,
               Totals& totals) {
  const auto rows = static_cast<int64_t>(block.samples.size());
  const auto groups = static_cast<int64_t>(checkpoint.means.size()) / dimension;
  const auto [products, squares] =
      dot_products({block.rows.data(), rows, checkpoint.train.facts.dimension()},
                   {checkpoint.means.data(), groups, dimension}, dimension, threads);
  for (int64_t i = 0; i < rows; ++i) {
    const auto place = static_cast<size_t>(i);
    const double factor = checkpoint.weight / std::max(std::sqrt(squares[place]), kLeastLength);
    const auto total = totals.of(block.samples[place]);
    for (size_t g = 0; g < total.size(); ++g) {
      total[g] += static_cast<float>(factor * products[place * total.size() + g]);
    }
  }
  for (const auto& skipped : block.skipped) totals.leave_out(skipped.sample);
}

void add_checkpoint(const Checkpoint& checkpoint, int64_t dimension, int threads, Totals& totals,
                    Progress& progress) {
  auto& reader = checkpoint.rows;
  while (const auto block = reader.next()) {
    end_if_stop_waits();
    add_block(*block, checkpoint, dimension, num_threads(threads), totals);
    progress.add(static_cast<uint64_t>(block->range.last - block->range.first));
  }
}

}  // namespace

Scores score(const ScoreOptions& options) {
  const size_t count = options.train.size();
  if (count == 0 || options.validation.size() != count) {
    throw UserError(fmt::format(
        "{} training collections and {} validation collections: give one of each per checkpoint",
        count, options.validation.size()));
  }
  const auto train = read_all(options.train), validation = read_all(options.validation);
  for (size_t k = 0; k < count; ++k) check_pair(train[k], validation[k]);
  check_same_samples(train);
  check_same_samples(validation);
  check_same_kind(train);
  check_same_kind(validation);
  auto all = train;
  all.insert(all.end(), validation.begin(), validation.end());
  const int64_t dimension = choose_dimension(all, options.dimension);
  const auto weights = normalised(options.weights, count);
  // Before anything is allocated for the samples that collections say they have: they are all
  // there.
  auto train_rows = open_all(options.train, options.threads);
  auto validation_rows = open_all(options.validation, options.threads);
  check_sizes(train.front().facts.num_samples,
              std::max<size_t>(1, std::set(options.groups.begin(), options.groups.end()).size()));
  const auto groups = group_samples(options.groups, validation.front());

  const int64_t samples = train.front().facts.num_samples;
  Totals totals(samples, groups.names.size());
  Progress progress("scoring samples", static_cast<uint64_t>(samples) * count, "samples");
  for (size_t k = 0; k < count; ++k) {
    const auto means = group_means(validation[k], validation_rows[k], groups, dimension);
    add_checkpoint({train[k], train_rows[k], means, weights[k]}, dimension, options.threads, totals,
                   progress);
  }

  Scores scores{.max_samples = train.front().facts.max_samples,
                .data_files = train.front().facts.data_files,
                .dimension = dimension,
                .groups = groups.names,
                .weights = weights};
  for (int64_t sample = 0; sample < samples; ++sample) {
    const auto total = totals.of(sample);
    const bool has_row = !std::isnan(total.front());
    scores.num_skipped += has_row ? 0 : 1;
    scores.values.push_back(has_row ? std::ranges::max(total)
                                    : -std::numeric_limits<float>::infinity());
  }
  return scores;
}

}  // namespace skein::gradient_features
