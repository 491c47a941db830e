// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/plan/data_outlook.h"

#include <algorithm>
#include <span>
#include <vector>

#include "skein/core/file.h"
#include "skein/data/blocks.h"
#include "skein/data/prepare.h"
#include "skein/data/sample_plan.h"
#include "skein/data/source_files.h"
#include "skein/data/token_file.h"
#include "skein/plan/rules.h"
#include "skein/text/text_codec.h"

namespace skein::plan {
namespace {

// Tokens per byte of the first 256 KiB of text.
double density(const text::TextCodec& codec, const fs::path& path, uint64_t size) {
  constexpr uint64_t kSample = uint64_t{256} << 10;
  std::string text(std::min(size, kSample), '\0');
  File::open_to_read(path).read_at(0, std::as_writable_bytes(std::span(text)));
  // A sample may end inside a character, and a tokenizer takes whole ones.
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
  if (text.empty()) return 1;
  std::vector<uint32_t> tokens;
  codec.encode(text, tokens);
  return static_cast<double>(tokens.size()) / static_cast<double>(text.size());
}

void count_text(const text::TextCodec& codec, const data::Sources& sources, DataOutlook& outlook) {
  const bool by_bytes = codec.is_bytes();
  outlook.exact = by_bytes;
  double tokens = 0, rate = 0;
  for (const auto& path : sources.files) {
    const auto size = fs::file_size(path);
    outlook.bytes += size;
    const bool plain = by_bytes && path.extension() != ".jsonl";
    if (!plain) outlook.exact = false;
    if (!plain && rate == 0) rate = density(codec, path, size);
    tokens += static_cast<double>(size) * (plain ? 1 : rate) + 1;
  }
  outlook.tokens = static_cast<int64_t>(tokens);
}

void count_tokens(const data::Sources& sources, DataOutlook& outlook) {
  outlook.exact = true;
  for (const auto& path : sources.files) {
    outlook.bytes += fs::file_size(path);
    outlook.tokens += static_cast<int64_t>(data::locate_tokens(path).count);
  }
}

// An estimate is no reason to refuse: where it leaves no whole batch, the steps are unknown.
void count_steps(const config::RunConfig& config, int64_t global_batch, DataOutlook& outlook) {
  const data::Blocks blocks(outlook.tokens, config.data.block_size);
  if (blocks.count() == 0) return;
  const auto samples = data::samples_of(config.data, blocks.count(), data::Split::kTrain,
                                        data::held_out_percentage(config.data, evaluates(config)),
                                        data_seed(config));
  outlook.blocks = samples.count();
  const bool drop_last = config.data.dataloader_drop_last;
  if (!outlook.exact && drop_last && samples.count() < global_batch) return;
  outlook.steps_per_epoch =
      data::SamplePlan(samples, {.global_batch = global_batch, .drop_last = drop_last})
          .steps_per_epoch();
}

}  // namespace

DataOutlook look_at_data(const config::RunConfig& config, int64_t global_batch) {
  DataOutlook outlook;
  const auto sources = data::find_sources(config.data, data::Split::kTrain);
  outlook.files = sources.files.size();
  if (sources.files.empty()) return outlook;
  const auto codec = text::open_codec(config.model);
  if (sources.kind == data::SourceKind::kTokens) {
    count_tokens(sources, outlook);
  } else {
    count_text(*codec, sources, outlook);
  }
  count_steps(config, global_batch, outlook);
  return outlook;
}

}  // namespace skein::plan
