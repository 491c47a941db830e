// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/data/encode_files.h"
#include "skein/data/source_facts.h"
#include "skein/data/token_file.h"

namespace skein::data {
namespace {

constexpr double kDefaultHeldOut = 5;

// Encodes a split's text into a prepared file.
class TextEncoder {
 public:
  TextEncoder(const config::DataConfig& data, const text::TextCodec& codec, const Sources& sources,
              std::string key)
      : data_(data), codec_(codec), sources_(sources), key_(std::move(key)) {}

  TokenCacheHeader encode(const fs::path& path, Split split) const {
    uint64_t bytes = 0;
    for (const auto& file : sources_.files) bytes += fs::file_size(file);
    const auto what = fmt::format("encoding the {} data", split_name(split));
    Progress progress(what, bytes);
    const auto width = codec_.vocab_size() <= 1 << 16 ? TokenWidth::k16 : TokenWidth::k32;
    const auto writer =
        explain_storing([&] { return std::make_unique<TokenCacheWriter>(path, width); });
    const auto totals = encode_files(sources_.files, codec_,
                                     {.bad_lines = data_.bad_lines,
                                      .threads = num_threads(data_.preprocessing_num_workers),
                                      .on_bytes = [&](uint64_t done) { progress.add(done); }},
                                     [&](std::span<const uint32_t> tokens) {
                                       explain_storing([&] { writer->append(tokens); });
                                     });
    const auto header = explain_storing([&] {
      return writer->commit(
          {.documents = totals.documents, .bad_lines = totals.bad_lines, .key = key_});
    });
    report_bad_lines(totals.bad_lines, totals.first_bad_lines, split);
    log_info("prepared the {} data: {} of {} in {:.1f} s ({}/s), {} tokens in {}: {}",
             split_name(split), shown_bytes(bytes), counted(sources_.files.size(), "file"),
             progress.seconds(),
             shown_bytes(static_cast<uint64_t>(static_cast<double>(bytes) /
                                               std::max(progress.seconds(), 1e-6))),
             header.count, counted(header.documents, "document"), path.string());
    return header;
  }

 private:
  const config::DataConfig& data_;
  const text::TextCodec& codec_;
  const Sources& sources_;
  std::string key_;
};

void map_text(const TextEncoder& encoder, CacheEntry cache, Split split, PreparedData& result) {
  const auto header = cache.header(split, [&] { return encoder.encode(cache.path(), split); });
  const auto region = token_cache_region(cache.path(), header);
  result.tokens = TokenArray(std::span(&region, 1));
  result.prepared_file = cache.path();
  result.was_reused = cache.was_reused();
  result.documents = header.documents;
  result.bad_lines = header.bad_lines;
  result.largest_token = header.largest_token;
}

void map_token_files(const Sources& sources, const std::vector<FileFacts>& facts,
                     PreparedData& result) {
  std::vector<TokenRegion> regions;
  for (const auto& path : sources.files) regions.push_back(locate_tokens(path));
  result.tokens = TokenArray(regions);
  result.was_reused = true;
  for (const auto& fact : facts) {
    result.largest_token = std::max(result.largest_token, fact.largest_token);
  }
}

}  // namespace

void require_tokens(const std::vector<fs::path>& files, int64_t count, Split split) {
  if (count >= 2) return;
  const auto where = files.size() == 1 ? files[0].string()
                                       : fmt::format("{} and {}", files[0].string(),
                                                     counted(files.size() - 1, "other file"));
  throw IoError(
      fmt::format("the {} data, {}, holds {}; a sample needs at least two tokens, one to read and "
                  "one to predict",
                  split_name(split), where, count == 0 ? "no data" : "only one token"));
}

PreparedData prepare(const config::DataConfig& data, const text::TextCodec& codec, Split split) {
  const auto sources = find_sources(data, split);
  if (sources.files.empty()) {
    throw UserError(split == Split::kTrain
                        ? "there is nothing to train on: give train_file (or train_file_dir)"
                        : "there is nothing to evaluate on: give eval_file, validation_file_dir or "
                          "validation_split_percentage");
  }
  FileIndex index(cache_folder(data));
  const auto facts = facts_of(sources, index, num_threads(data.preprocessing_num_workers));
  const bool is_text = sources.kind == SourceKind::kText;
  PreparedData result{.digest = prepared_key(PreparedKind::kTokens, sources, facts,
                                             is_text ? codec.identity() : "none"),
                      .kind = sources.kind,
                      .files = sources.files};
  if (is_text) {
    map_text(TextEncoder(data, codec, sources, result.digest),
             CacheEntry(data, PreparedKind::kTokens, result.digest, index), split, result);
  } else {
    map_token_files(sources, facts, result);
  }
  require_tokens(result.files, result.tokens.size(), split);
  return result;
}

RunData prepare_run(const config::RunConfig& config) {
  const auto codec = text::open_codec(config.model);
  RunData run{.train = prepare(config.data, *codec, Split::kTrain)};
  if (has_eval_sources(config.data)) run.eval = prepare(config.data, *codec, Split::kEval);
  return run;
}

bool has_eval_sources(const config::DataConfig& data) {
  return !find_sources(data, Split::kEval).files.empty();
}

double held_out_percentage(const config::DataConfig& data, bool evaluates) {
  if (has_eval_sources(data)) return 0;
  if (data.validation_split_percentage > 0) return data.validation_split_percentage;
  return evaluates ? kDefaultHeldOut : 0;
}

SampleSet samples_of(const config::DataConfig& data, int64_t count, Split split, double held_out,
                     uint64_t seed) {
  const auto side = split == Split::kTrain ? Holdout::kKept : Holdout::kHeldOut;
  const auto all = held_out > 0 ? SampleSet(count, held_out, seed, side) : SampleSet(count);
  const auto limit = split == Split::kTrain ? data.max_train_samples : data.max_eval_samples;
  return limit ? all.first(*limit) : all;
}

}  // namespace skein::data
