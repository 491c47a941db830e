// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/preview_rows.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/parallel.h"
#include "skein/data/rows/packing.h"

namespace skein::data {
namespace {

constexpr uint64_t kSampleBytes = uint64_t{256} << 10;
constexpr size_t kSampledFiles = 16;

// Of a row, what is trained on; 0: it is left out.
int64_t kept_tokens(const text::MaskedTokens& tokens, const RowLimits& limits) {
  const int64_t length = std::ssize(tokens.ids);
  if (length > limits.cutoff_len && limits.excess_length == ExcessLength::kDrop) return 0;
  const int64_t kept = std::min(length, limits.cutoff_len);
  const auto targets = std::span(tokens.trained).first(static_cast<size_t>(kept));
  const bool has_target = kept > 1 && std::ranges::find(targets.subspan(1), 1) != targets.end();
  return has_target ? kept : 0;
}

std::span<const fs::path> sampled_files(const Sources& sources) {
  return std::span(sources.files).first(std::min(sources.files.size(), kSampledFiles));
}

int64_t scaled(int64_t count, double factor) {
  return static_cast<int64_t>(static_cast<double>(count) * factor);
}

}  // namespace

bool hold_conversations(const Sources& sources) {
  bool found = false;
  const RowEncoder look{.encode =
                            [&](const Row& row) {
                              found = found || row.kind != Row::Kind::kText;
                              return text::MaskedTokens{};
                            },
                        .identity = {}};
  for (const auto& path : sampled_files(sources)) {
    try {
      encode_rows(std::span(&path, 1), look,
                  {.bad_lines = config::BadLines::kSkip, .most_bytes = kSampleBytes},
                  [](const EncodedRow&) {});
    } catch (const IoError&) {  // whoever reads all of it says what is wrong
    }
    if (found) return true;
  }
  return false;
}

RowPreview preview_rows(const Sources& sources, const RunRowsOptions& options) {
  RowPreview seen{.exact = sources.files.size() <= kSampledFiles};
  for (const auto& path : sources.files) {
    const auto size = fs::file_size(path);
    seen.bytes += size;
    seen.exact = seen.exact && size <= kSampleBytes;
  }
  uint64_t sampled = 0;
  std::vector<int64_t> lengths;
  encode_rows(sampled_files(sources), options.encoder,
              {.bad_lines = options.data.bad_lines,
               .threads = num_threads(options.data.preprocessing_num_workers),
               .most_bytes = kSampleBytes,
               .on_bytes = [&](uint64_t done) { sampled += done; }},
              [&](const EncodedRow& row) {
                const int64_t kept = kept_tokens(row.tokens, options.limits);
                if (kept > 0) lengths.push_back(kept);
              });
  if (lengths.empty()) return seen;
  const double factor =
      seen.exact ? 1.0 : static_cast<double>(seen.bytes) / static_cast<double>(sampled);
  seen.rows = scaled(std::ssize(lengths), factor);
  seen.tokens = scaled(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), factor);
  seen.packs =
      std::max<int64_t>(1, scaled(best_fit(lengths, options.limits.cutoff_len).count(), factor));
  seen.longest = std::ranges::max(lengths);
  return seen;
}

}  // namespace skein::data
