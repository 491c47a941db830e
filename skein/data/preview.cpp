// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/preview.h"

#include <algorithm>
#include <vector>

#include "skein/data/encode_files.h"
#include "skein/data/prepare.h"
#include "skein/data/run_samples.h"
#include "skein/data/token_file.h"

namespace skein::data {
namespace {

constexpr uint64_t kSampleBytes = uint64_t{256} << 10;
constexpr int kSampledFiles = 16;
constexpr uint64_t kReadTokenBytes = uint64_t{1} << 30;

// Where every byte is a token, the size of a file tells their number.
bool is_counted_by_size(const fs::path& path, const text::TextCodec& codec) {
  return codec.is_bytes() && path.extension() != ".jsonl";
}

Preview preview_text(const Sources& sources, const text::TextCodec& codec,
                     config::BadLines bad_lines) {
  Preview seen{.exact = true};
  EncodedBeginning samples;
  double tokens = 0;
  int sampled = 0;
  for (const auto& path : sources.files) {
    const uint64_t size = fs::file_size(path);
    seen.bytes += size;
    if (size == 0) continue;
    if (is_counted_by_size(path, codec)) {
      tokens += static_cast<double>(size) + 1;  // it ends with a token of its own
      continue;
    }
    auto own = samples;  // of a file that is not sampled: like those that are
    if (sampled++ < kSampledFiles) {
      own = encode_beginning(path, codec, bad_lines, kSampleBytes);
      samples.bytes += own.bytes;
      samples.tokens += own.tokens;
    }
    seen.exact = seen.exact && own.bytes == size && sampled <= kSampledFiles;
    tokens += static_cast<double>(own.tokens) * static_cast<double>(size) /
              static_cast<double>(own.bytes);
  }
  seen.tokens = static_cast<int64_t>(tokens);
  return seen;
}

Preview preview_tokens(const Sources& sources, std::optional<int64_t> vocab_size) {
  Preview seen{.exact = true};
  uint64_t left = kReadTokenBytes;
  std::vector<TokenRegion> regions;
  for (const auto& path : sources.files) {
    seen.bytes += fs::file_size(path);
    auto region = locate_tokens(path);
    seen.tokens += static_cast<int64_t>(region.count);
    region.count = std::min(region.count, left / static_cast<uint64_t>(region.width));
    left -= region.bytes();
    if (region.count > 0) regions.push_back(std::move(region));
  }
  if (!vocab_size) return seen;
  const TokenArray tokens(regions);
  require_vocabulary(sources.files, tokens, tokens.largest(0, tokens.size()), *vocab_size);
  return seen;
}

}  // namespace

Preview preview(const Sources& sources, const text::TextCodec& codec,
                const PreviewOptions& options) {
  const bool is_text = sources.kind == SourceKind::kText;
  if (is_text && options.vocab_size) require_vocabulary(codec, *options.vocab_size);
  const auto seen = is_text ? preview_text(sources, codec, options.bad_lines)
                            : preview_tokens(sources, options.vocab_size);
  if (seen.exact) require_tokens(sources.files, seen.tokens, options.split);
  return seen;
}

}  // namespace skein::data
