// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "skein/checkpoint/catalog.h"
#include "skein/core/error.h"
#include "skein/core/hash.h"
#include "skein/core/log.h"

namespace skein::checkpoint {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// Appends the ranges of `bytes`, each small enough for a verifier's buffer.
void digest_pieces(uint64_t file, uint64_t offset, Bytes bytes, std::vector<WrittenRange>& ranges) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<uint64_t>(bytes.size(), kMaxRangeBytes));
    ranges.push_back({file, offset, offset + part.size(), digest(part)});
    offset += part.size();
    bytes = bytes.subspan(part.size());
  }
}

fs::path path_of(const Job& job, const fs::path& folder, const std::string& suffix, uint64_t file) {
  return folder / (job.files.at(file).name + suffix);
}

// Rank 0: every tensor file at its full length, with its header.
void create_files(const Job& job, const fs::path& folder, const std::string& suffix,
                  std::vector<WrittenRange>& ranges) {
  for (uint64_t i = 0; i < job.files.size(); ++i) {
    const auto file = File::create(path_of(job, folder, suffix, i));
    file.resize(job.files[i].size);
    file.write_at(0, bytes_of(job.files[i].header));
    file.sync();
    digest_pieces(i, 0, bytes_of(job.files[i].header), ranges);
  }
}

void write_pieces(const Job& job, const fs::path& folder, const std::string& suffix,
                  std::vector<WrittenRange>& ranges) {
  std::map<uint64_t, File> files;
  for (size_t i = 0; i < job.pieces.size(); ++i) {
    const auto& piece = job.pieces[i];
    if (piece.bytes.empty()) continue;
    auto& file = files[piece.file];
    if (!file) file = File::open_to_write(path_of(job, folder, suffix, piece.file));
    if (job.flow != nullptr) job.flow->await(i);
    file.write_at(piece.offset, piece.bytes);
    digest_pieces(piece.file, piece.offset, piece.bytes, ranges);
    if (job.flow != nullptr) job.flow->written(i);
  }
  for (const auto& [index, file] : files) file.sync();
}

std::vector<FileRecord> file_records(const Job& job, const std::vector<WrittenRange>& ranges) {
  std::vector<FileRecord> records;
  for (const auto& file : job.files) records.push_back({.name = file.name, .size = file.size});
  for (const auto& range : ranges) {
    if (range.file >= records.size()) throw IoError(fmt::format("no file {}", range.file));
    records[range.file].ranges.push_back({range.begin, range.end, range.digest});
  }
  return records;
}

void write_text(const fs::path& path, const std::string& text) {
  const auto file = File::create(path);
  file.write_at(0, bytes_of(text));
  file.sync();
}

void write_texts(const Job& job, const fs::path& folder, std::vector<FileRecord>& records) {
  for (const auto& [name, text] : job.texts) {
    write_text(folder / name, text);
    std::vector<WrittenRange> ranges;
    digest_pieces(0, 0, bytes_of(text), ranges);
    FileRecord record{.name = name, .size = text.size()};
    for (auto& range : ranges) record.ranges.push_back({range.begin, range.end, range.digest});
    records.push_back(std::move(record));
  }
}

void remove_quietly(const fs::path& folder) {
  try {
    remove_folder(folder);
  } catch (const IoError& error) {
    log_warning("{}", error.what());
  }
}

// Gives a whole folder its final name. An older checkpoint of the same step is swapped out in one
// move where the file system can, else in two, and stays until it is known that the move will last.
class Placement {
 public:
  Placement(fs::path temporary, fs::path final)
      : temporary_(std::move(temporary)), final_(std::move(final)), replaced_(final_) {
    replaced_ += ".tmp-replaced";
  }

  void move_in() {
    if (fs::exists(final_)) {
      swapped_ = exchange_paths(temporary_, final_);
      if (swapped_) return;
      remove_tree(replaced_);
      rename_path(final_, replaced_);
      set_aside_ = true;
    }
    rename_path(temporary_, final_);
    moved_ = true;
  }

  // All as it was before.
  void undo() {
    try {
      if (swapped_) exchange_paths(temporary_, final_);
      if (moved_) rename_path(final_, temporary_);
      if (set_aside_) rename_path(replaced_, final_);
    } catch (const IoError& error) {
      log_warning("{}", error.what());
    }
  }

  void remove_older() { remove_tree(swapped_ ? temporary_ : replaced_); }

 private:
  fs::path temporary_, final_, replaced_;
  bool swapped_ = false, set_aside_ = false, moved_ = false;
};

// What comes after the commit cannot undo it.
void tidy_up(const CommitOptions& options, Placement& placement) {
  try {
    placement.remove_older();
    replace_symlink(options.output / "latest", checkpoint_name(options.step));
    remove_old_checkpoints(options.output, options.save_total_limit,
                           {options.step, options.protected_step});
  } catch (const std::exception& error) {
    log_warning("{} is saved, but: {}", checkpoint_name(options.step), error.what());
  }
}

void commit(const Job& job, const CommitOptions& options, const fs::path& temporary,
            const std::vector<WrittenRange>& ranges) {
  Manifest manifest{
      .step = static_cast<uint64_t>(options.step),
      .run = options.token,
      .saved_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
      .conditions = options.conditions,
      .files = file_records(job, ranges)};
  write_texts(job, temporary, manifest.files);
  write_text(temporary / kManifestName, manifest_text(std::move(manifest)));
  sync_directory(temporary);
  Placement placement(temporary, options.output / checkpoint_name(options.step));
  try {
    placement.move_in();
    sync_directory(options.output);
  } catch (const IoError&) {
    placement.undo();  // a name that may be gone after a power cut is not a commit
    throw;
  }
  tidy_up(options, placement);
}

// Removed first and written last: its steps say that the whole model is there.
const std::string kMark = "trainer_state.json";

void remove_other_shards(const Job& job, const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(output)) {
    const auto name = entry.path().filename().string();
    const bool current = job.texts.contains(name) ||
                         std::any_of(job.files.begin(), job.files.end(),
                                     [&](const auto& file) { return file.name == name; });
    if (!current && is_planned_name(name, "model")) remove_tree(entry.path());
  }
}

void export_files(const Job& job, const CommitOptions& options, const std::string& suffix) {
  remove_tree(options.output / kMark);
  sync_directory(options.output);
  for (const auto& file : job.files) {
    rename_path(options.output / (file.name + suffix), options.output / file.name);
  }
  for (const auto& [name, text] : job.texts) {
    if (name != kMark) write_file_atomically(options.output / name, text);
  }
  remove_other_shards(job, options.output);
  sync_directory(options.output);
  if (const auto mark = job.texts.find(kMark); mark != job.texts.end()) {
    write_file_atomically(options.output / mark->first, mark->second);
  }
}

// Where this save's tensor files lie until the commit.
struct Place {
  fs::path folder;
  std::string suffix;
};

using Steps = std::function<void(const std::vector<WrittenRange>& ranges)>;

// Never empty: an empty text means success.
std::string reason(const std::exception& error) {
  return *error.what() == '\0' ? "unknown failure" : error.what();
}

// Rank 0's part: create, write, collect, then `finish`.
std::string lead(const Job& job, const Place& place, Exchange& exchange, const Steps& finish) {
  std::string failure;
  try {
    make_directories(place.folder);
    std::vector<WrittenRange> ranges;
    create_files(job, place.folder, place.suffix, ranges);
    exchange.announce_ready();
    write_pieces(job, place.folder, place.suffix, ranges);
    const auto others = exchange.collect();
    ranges.insert(ranges.end(), others.begin(), others.end());
    finish(ranges);
  } catch (const std::exception& error) {
    failure = reason(error);
  }
  return failure;
}

// Rank 0 is told at once, whatever went wrong: otherwise it would wait until the deadline.
void write_and_report(const Job& job, const Place& place, Exchange& exchange) {
  std::vector<WrittenRange> ranges;
  try {
    write_pieces(job, place.folder, place.suffix, ranges);
  } catch (const std::exception& error) {
    exchange.report_failure(reason(error));
    return;
  }
  exchange.report(ranges);
}

std::string follow(const Job& job, const Place& place, Exchange& exchange) {
  try {
    exchange.await_ready();
    write_and_report(job, place, exchange);
    return exchange.await_result();
  } catch (const std::exception& error) {
    return reason(error);
  }
}

// The others learn the outcome even when it is bad; a store that is gone cannot make it worse.
void announce_result(Exchange& exchange, const std::string& failure) {
  try {
    exchange.announce_result(failure);
  } catch (const std::exception& error) {
    log_warning("cannot announce the end of a save: {}", error.what());
  }
}

}  // namespace

std::string write_checkpoint(const Job& job, const CommitOptions& options, Exchange& exchange) {
  const auto name = checkpoint_name(options.step);
  const Place place{options.output / fmt::format("{}.tmp-{}", name, options.token), ""};
  if (exchange.rank() != 0) return follow(job, place, exchange);

  const auto failure = lead(job, place, exchange, [&](const auto& ranges) {
    commit(job, options, place.folder, ranges);
  });
  if (!failure.empty()) {
    remove_quietly(place.folder);
    log_warning("{} was not saved; training goes on and older checkpoints are untouched: {}", name,
                failure);
  }
  announce_result(exchange, failure);
  return failure;
}

std::string write_model(const Job& job, const CommitOptions& options, Exchange& exchange) {
  const Place place{options.output, ".tmp-" + options.token};
  if (exchange.rank() != 0) return follow(job, place, exchange);

  const auto failure = lead(job, place, exchange, [&](const auto& ranges) {
    manifest_text({.files = file_records(job, ranges)});  // throws if a byte was not written
    export_files(job, options, place.suffix);
  });
  for (uint64_t i = 0; i < job.files.size() && !failure.empty(); ++i) {
    remove_quietly(path_of(job, place.folder, place.suffix, i));
  }
  announce_result(exchange, failure);
  return failure;
}

}  // namespace skein::checkpoint
