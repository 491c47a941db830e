// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/prepare_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/data/cache_entry.h"
#include "skein/data/source_facts.h"

namespace skein::data {
namespace {

TokenCacheHeader write_rows(const PreparedRows& wanted, const config::DataConfig& data,
                            const RowEncoder& encoder, Split split) {
  uint64_t bytes = 0;
  for (const auto& file : wanted.files) bytes += fs::file_size(file);
  Progress progress(fmt::format("encoding the {} data", split_name(split)), bytes);
  const auto width = encoder.vocab_size <= 1 << 16 ? TokenWidth::k16 : TokenWidth::k32;
  const auto writer = explain_storing(
      [&] { return std::make_unique<RowCacheWriter>(wanted.prepared_file, width, encoder.kind); });
  const auto totals =
      encode_rows(wanted.files, encoder,
                  {.bad_lines = data.bad_lines,
                   .threads = num_threads(data.preprocessing_num_workers),
                   .on_bytes = [&](uint64_t done) { progress.add(done); }},
                  [&](const EncodedRow& row) { explain_storing([&] { writer->append(row); }); });
  const auto header = explain_storing(
      [&] { return writer->commit({.bad_lines = totals.bad_rows, .key = wanted.digest}); });
  report_bad_lines(totals.bad_rows, totals.first_bad_rows, split);
  const double seconds = std::max(progress.seconds(), 1e-6);
  log_info("prepared the {} data: {} of {} in {:.1f} s ({:.0f} rows/s), {} tokens in {}: {}",
           split_name(split), shown_bytes(bytes), counted(wanted.files.size(), "file"), seconds,
           static_cast<double>(totals.rows) / seconds, header.count, counted(totals.rows, "row"),
           wanted.prepared_file.string());
  return header;
}

}  // namespace

void refuse_no_rows(const std::vector<fs::path>& files, Split split) {
  throw IoError(fmt::format("the {} data, {}{}, holds no row", split_name(split), files[0].string(),
                            files.size() > 1 ? " and the files after it" : ""));
}

std::string PreparedRows::place_of(int64_t row) const {
  const auto& first = entry(row);
  const auto file = first.file < files.size() ? files[first.file].string() : "?";
  return fmt::format("{}:{}", file, first.number);
}

PreparedRows prepare_rows(const config::DataConfig& data, const RowEncoder& encoder, Split split) {
  const auto sources = find_row_sources(data, split);
  if (sources.files.empty()) {
    throw UserError(split == Split::kTrain
                        ? "there is nothing to train on: give train_file (or train_file_dir)"
                        : "there is nothing to evaluate on: give eval_file, validation_file_dir or "
                          "val_size");
  }
  FileIndex index(cache_folder(data));
  const auto facts = facts_of(sources, index, num_threads(data.preprocessing_num_workers));
  const auto kind = stored_kind(encoder.kind);
  PreparedRows result{.rows = {},
                      .kind = encoder.kind,
                      .digest = prepared_key(kind, sources, facts, encoder.identity),
                      .files = sources.files,
                      .prepared_file = {}};
  CacheEntry cache(data, kind, result.digest, index);
  result.prepared_file = cache.path();
  const auto header = cache.header(split, [&] { return write_rows(result, data, encoder, split); });
  result.rows = RowArray(cache.path(), header);
  result.was_reused = cache.was_reused();
  result.num_tokens = header.count;
  result.bad_rows = header.bad_lines;
  result.largest_token = header.largest_token;
  if (result.rows.count() == 0) refuse_no_rows(result.files, split);
  return result;
}

}  // namespace skein::data
