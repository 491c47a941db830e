// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/preview_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/parallel.h"
#include "skein/data/rows/packing.h"

namespace skein::data {
namespace {

constexpr uint64_t kSampleBytes = uint64_t{256} << 10;
constexpr size_t kSampledFiles = 16;

std::span<const fs::path> sampled_files(const Sources& sources) {
  return std::span(sources.files).first(std::min(sources.files.size(), kSampledFiles));
}

int64_t scaled(int64_t count, double factor) {
  return static_cast<int64_t>(static_cast<double>(count) * factor);
}

// Looks at rows as RowsSource and the audit do.
class Look {
 public:
  Look(const Sources& sources, const RunRowsOptions& options, const AuditOptions& tokens)
      : sources_(sources),
        kind_(options.encoder.kind),
        limits_(options.limits),
        wanted_(tokens),
        tally_(options.limits, kind_) {}

  void add(const EncodedRow& row) {
    std::vector<Answer> answers = {look_at(row.tokens)};
    if (row.rejected) answers.push_back(look_at(*row.rejected));
    std::vector<RowSize> sizes;
    for (const auto& answer : answers) sizes.push_back(answer.size);
    const auto place = [&] {
      return fmt::format("{}:{}", sources_.files[row.file].string(), row.number);
    };
    if (first_.empty()) first_ = place();
    if (!tally_.add(sizes, place, [&] { return are_equal(row); })) return;
    int64_t length = 0;
    for (const auto& answer : answers) {
      length += answer.within;
      longest_ = std::max(longest_, answer.within);
      end_trained_ += answer.ends;
      cut_ += answer.size.length > answer.within;
      ++answers_;
      if (!answer.ends && first_without_end_.empty()) first_without_end_ = place();
    }
    lengths_.push_back(length);
  }

  // Of all rows of the split.
  void require(Split split) const {
    if (tally_.counts().rows == 0) refuse_no_rows(sources_.files, split);
    tally_.require_samples(first_);
    if (kind_ == RowKind::kPrompts) return;
    auto audit = LabelAudit::expecting(wanted_, kind_, tally_.counts());
    audit.limits = limits_;
    audit.first = tally_.first();
    audit.answers = answers_;
    audit.cut = cut_;
    audit.end_trained = end_trained_;
    audit.first_without_end = first_without_end_;
    if (const auto why = audit.refusal(split)) throw IoError(*why);
  }

  std::vector<int64_t> take_lengths() { return std::move(lengths_); }
  int64_t longest() const { return longest_; }

 private:
  // One answer, or a row.
  struct Answer {
    RowSize size;
    int64_t within = 0;  // ids that stay
    bool ends = false;   // an end of turn is a target
  };

  Answer look_at(const text::MaskedTokens& tokens) const {
    const auto& [ids, trained, empty_turns] = tokens;
    Answer answer{.size = {.length = std::ssize(ids)},
                  .within = std::min(std::ssize(ids), limits_.cutoff_len)};
    for (size_t i = 1; i < ids.size(); ++i) {  // nothing predicts the first
      if (trained[i] == 0) continue;
      ++answer.size.targets;
      if (static_cast<int64_t>(i) >= answer.within) continue;
      ++answer.size.targets_within;
      answer.ends = answer.ends || wanted_.is_end(ids[i]);
    }
    return answer;
  }

  // Of what stays.
  bool are_equal(const EncodedRow& row) const {
    const auto kept = [&](const text::MaskedTokens& tokens) {
      const auto most = std::min(std::ssize(tokens.ids), limits_.cutoff_len);
      return std::span(tokens.ids).first(static_cast<size_t>(most));
    };
    return std::ranges::equal(kept(row.tokens), kept(*row.rejected));
  }

  const Sources& sources_;
  RowKind kind_;
  RowLimits limits_;
  const AuditOptions& wanted_;
  RowTally tally_;
  std::vector<int64_t> lengths_;
  int64_t end_trained_ = 0, longest_ = 0, cut_ = 0, answers_ = 0;
  std::string first_, first_without_end_;  // "FILE:ROW"
};

}  // namespace

bool hold_conversations(const Sources& sources) {
  bool found = false;
  RowEncoder look{.encode =
                      [&](const Row& row) {
                        found = found || row.kind != Row::Kind::kText;
                        return text::MaskedTokens{};
                      },
                  .identity = {}};
  for (const auto& path : sampled_files(sources)) {
    // Answers that were judged alone are read as others are, too.
    for (const auto kind : {RowKind::kRows, RowKind::kPairs}) {
      look.kind = kind;
      try {
        encode_rows(std::span(&path, 1), look,
                    {.bad_lines = config::BadLines::kSkip, .most_bytes = kSampleBytes},
                    [](const EncodedRow&) {});
      } catch (const IoError&) {  // whoever reads all of it says what is wrong
      }
      if (found) return true;
    }
  }
  return false;
}

RowPreview preview_rows(const Sources& sources, Split split, const RunRowsOptions& options,
                        const AuditOptions& tokens) {
  RowPreview seen{.exact = sources.files.size() <= kSampledFiles, .lengths = {}};
  for (const auto& path : sources.files) {
    const auto size = fs::file_size(path);
    seen.bytes += size;
    seen.exact = seen.exact && size <= kSampleBytes;
  }
  uint64_t sampled = 0;
  Look look(sources, options, tokens);
  encode_rows(sampled_files(sources), options.encoder,
              {.bad_lines = options.data.bad_lines,
               .threads = num_threads(options.data.preprocessing_num_workers),
               .most_bytes = kSampleBytes,
               .on_bytes = [&](uint64_t done) { sampled += done; }},
              [&](const EncodedRow& row) { look.add(row); });
  if (seen.exact) look.require(split);
  seen.lengths = look.take_lengths();
  seen.longest = look.longest();
  if (seen.lengths.empty()) return seen;
  const double factor =
      seen.exact ? 1.0 : static_cast<double>(seen.bytes) / static_cast<double>(sampled);
  const auto& lengths = seen.lengths;
  seen.rows = scaled(std::ssize(lengths), factor);
  seen.tokens = scaled(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), factor);
  seen.packs =
      std::max<int64_t>(1, scaled(best_fit(lengths, pack_tokens(options)).count(), factor));
  return seen;
}

}  // namespace skein::data
