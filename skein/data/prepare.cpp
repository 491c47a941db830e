// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/log.h"
#include "skein/core/parallel.h"
#include "skein/core/progress.h"
#include "skein/core/stop_signals.h"
#include "skein/data/content_digest.h"
#include "skein/data/encode_files.h"
#include "skein/data/file_index.h"
#include "skein/data/file_lock.h"
#include "skein/data/token_cache.h"
#include "skein/data/token_file.h"

namespace skein::data {
namespace {

constexpr double kDefaultHeldOut = 5;

uint32_t largest_token(const fs::path& path, int threads) {
  const auto region = locate_tokens(path);
  const TokenArray tokens(std::span(&region, 1));
  constexpr int64_t kRange = int64_t{1} << 23;
  std::vector<uint32_t> largest(static_cast<size_t>((tokens.size() + kRange - 1) / kRange));
  for_each_index(static_cast<int64_t>(largest.size()), threads, [&](int64_t i) {
    end_if_stop_waits();
    largest[static_cast<size_t>(i)] =
        tokens.largest(i * kRange, std::min((i + 1) * kRange, tokens.size()));
  });
  return largest.empty() ? 0 : *std::ranges::max_element(largest);
}

// A file that was written a moment ago may be written again without its time changing.
bool is_settled(const FileIdentity& identity) {
  using std::chrono::system_clock;
  const auto now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(system_clock::now().time_since_epoch());
  return now.count() - identity.modified_ns > 2'000'000'000;
}

// The digests of all files; unchanged ones are not read.
std::vector<FileFacts> facts_of(const Sources& sources, FileIndex& index, int threads) {
  std::vector<FileIdentity> identities;
  uint64_t unknown_bytes = 0;
  for (const auto& path : sources.files) {
    identities.push_back(FileIdentity::of(path));
    if (!index.find(identities.back())) unknown_bytes += identities.back().size;
  }
  Progress progress("reading " + counted(sources.files.size(), "file"), unknown_bytes);
  std::vector<FileFacts> facts;
  std::map<FileIdentity, FileFacts> news;
  for (size_t i = 0; i < sources.files.size(); ++i) {
    const auto& path = sources.files[i];
    if (const auto known = index.find(identities[i])) {
      facts.push_back(*known);
      continue;
    }
    FileFacts fact{
        .digest = content_digest(path, 0, threads, [&](uint64_t bytes) { progress.add(bytes); })};
    if (sources.kind == SourceKind::kTokens) fact.largest_token = largest_token(path, threads);
    if (FileIdentity::of(path) != identities[i]) {
      throw IoError(fmt::format("{} changed while it was read", path.string()));
    }
    if (is_settled(identities[i])) news[identities[i]] = fact;
    facts.push_back(std::move(fact));
  }
  index.remember(news);
  return facts;
}

std::string key_of(const Sources& sources, const std::vector<FileFacts>& facts,
                   const std::string& codec) {
  auto text = fmt::format("skein tokens {}\nencoder {}\n", kTokenCacheVersion, codec);
  for (size_t i = 0; i < facts.size(); ++i) {
    text += fmt::format("{} {}\n", sources.files[i].extension().string(), facts[i].digest);
  }
  return digest(text);
}

// The cache of one split's text.
class TextCache {
 public:
  TextCache(const config::DataConfig& data, const text::TextCodec& codec, const Sources& sources,
            std::string key, FileIndex& index)
      : data_(data),
        codec_(codec),
        sources_(sources),
        key_(std::move(key)),
        folder_(cache_folder(data)),
        path_(folder_ / (key_ + ".tokens")),
        index_(index) {}

  const fs::path& path() const { return path_; }
  bool was_reused() const { return was_reused_; }

  TokenCacheHeader header(Split split) {
    if (!data_.overwrite_cache) {
      if (const auto header = usable()) return *header;
    }
    explain_storing([&] { make_directories(folder_); });
    bool waited = false;
    const auto lock = explain_storing([&] {
      return std::make_unique<FileLock>(folder_ / (key_ + ".lock"), [&] {
        waited = true;
        log_info("another process is preparing the {} data; waiting for it", split_name(split));
      });
    });
    if (waited || !data_.overwrite_cache) {  // another process may have finished meanwhile
      if (const auto header = usable()) return *header;
    }
    was_reused_ = false;
    return encode(split);
  }

 private:
  // Nothing when the file is absent, broken, or not what this run wants.
  std::optional<TokenCacheHeader> usable() {
    if (std::error_code ignored; !fs::exists(path_, ignored)) return std::nullopt;
    try {
      auto header = read_token_cache_header(path_, key_);
      // A run that stops at bad lines must hear of them.
      if (header.bad_lines > 0 && data_.bad_lines == config::BadLines::kStop) return std::nullopt;
      verify(header);
      return header;
    } catch (const IoError& error) {
      if (!std::exchange(has_warned_, true)) log_warning("{}; preparing it again", error.what());
      return std::nullopt;
    }
  }

  // Reads all tokens, unless that was done since the file was last changed.
  void verify(const TokenCacheHeader& header) {
    const auto identity = FileIdentity::of(path_);
    const auto known = index_.find(identity);
    if (known && known->digest == header.digest) return;
    Progress progress("checking prepared data", identity.size);
    const auto found = content_digest(path_, kTokenCacheHeaderBytes, threads(),
                                      [&](uint64_t bytes) { progress.add(bytes); });
    if (found != header.digest) {
      throw IoError(fmt::format("{}: its tokens are damaged", path_.string()));
    }
    index_.remember({{identity, {.digest = found}}});
  }

  TokenCacheHeader encode(Split split) {
    uint64_t bytes = 0;
    for (const auto& file : sources_.files) bytes += fs::file_size(file);
    const auto what = fmt::format("encoding the {} data", split_name(split));
    Progress progress(what, bytes);
    const auto width = codec_.vocab_size() <= 1 << 16 ? TokenWidth::k16 : TokenWidth::k32;
    const auto writer =
        explain_storing([&] { return std::make_unique<TokenCacheWriter>(path_, width); });
    const auto totals = encode_files(sources_.files, codec_,
                                     {.bad_lines = data_.bad_lines,
                                      .threads = threads(),
                                      .on_bytes = [&](uint64_t done) { progress.add(done); }},
                                     [&](std::span<const uint32_t> tokens) {
                                       explain_storing([&] { writer->append(tokens); });
                                     });
    const auto header = explain_storing([&] {
      return writer->commit(
          {.documents = totals.documents, .bad_lines = totals.bad_lines, .key = key_});
    });
    index_.remember({{FileIdentity::of(path_), {.digest = header.digest}}});
    report(split, header, totals, bytes, progress.seconds());
    return header;
  }

  void report(Split split, const TokenCacheHeader& header, const EncodeTotals& totals,
              uint64_t bytes, double seconds) const {
    if (totals.bad_lines > 0) {
      auto text = fmt::format("left {} out of the {} data (bad_lines=skip):",
                              counted(totals.bad_lines, "bad line"), split_name(split));
      for (const auto& line : totals.first_bad_lines) text += "\n  " + line;
      if (totals.bad_lines > totals.first_bad_lines.size()) text += "\n  …";
      log_warning("{}", text);
    }
    log_info(
        "prepared the {} data: {} of {} in {:.1f} s ({}/s), {} tokens in {}: {}", split_name(split),
        shown_bytes(bytes), counted(sources_.files.size(), "file"), seconds,
        shown_bytes(static_cast<uint64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-6))),
        header.count, counted(header.documents, "document"), path_.string());
  }

  int threads() const { return num_threads(data_.preprocessing_num_workers); }

  const config::DataConfig& data_;
  const text::TextCodec& codec_;
  const Sources& sources_;
  std::string key_;
  fs::path folder_, path_;
  FileIndex& index_;
  bool was_reused_ = true;
  bool has_warned_ = false;
};

void map_text(TextCache cache, Split split, PreparedData& result) {
  const auto header = cache.header(split);
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
  PreparedData result{.digest = key_of(sources, facts, is_text ? codec.identity() : "none"),
                      .kind = sources.kind,
                      .files = sources.files};
  if (is_text) {
    map_text(TextCache(data, codec, sources, result.digest, index), split, result);
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

void refuse_storing(const std::string& why) {
  throw IoError(fmt::format(
      "cannot store prepared data: {}; make room there, or give data_cache_dir a folder with more "
      "(about two bytes per token, four for vocabularies above 65,536)",
      why));
}

fs::path cache_folder(const config::DataConfig& data) {
  if (!data.data_cache_dir.empty()) return data.data_cache_dir;
  const auto folder_of = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const auto cache = folder_of("XDG_CACHE_HOME"); cache.is_absolute()) {
    return cache / "skein" / "data";
  }
  if (const auto home = folder_of("HOME"); home.is_absolute()) {
    return home / ".cache" / "skein" / "data";
  }
  throw UserError(
      "data_cache_dir: neither XDG_CACHE_HOME nor HOME is set; say where prepared data goes");
}

}  // namespace skein::data
