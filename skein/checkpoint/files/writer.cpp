// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/checkpoint/files/writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "skein/checkpoint/files/catalog.h"
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

// Where this save's tensor files lie until the commit.
struct Place {
  fs::path folder;
  std::string suffix;
};

fs::path path_of(const Job& job, const Place& place, uint64_t file) {
  return place.folder / (job.files.at(file).name + place.suffix);
}

// Makes the folder that a name has, if any. Through no link: what is written would be elsewhere.
void make_folder_of(const std::string& name, const fs::path& output) {
  const auto parent = fs::path(name).parent_path();
  if (parent.empty()) return;
  if (fs::is_symlink(fs::symlink_status(output / parent))) {
    throw IoError(
        fmt::format("{} is a link: nothing is written through it", (output / parent).string()));
  }
  make_directories(output / parent);
}

// Rank 0: every tensor file at its full length.
void create_files(const Job& job, const Place& place) {
  for (uint64_t i = 0; i < job.files.size(); ++i) {
    make_folder_of(job.files[i].name, place.folder);
    const auto file = File::create(path_of(job, place, i));
    file.reserve(job.files[i].size);
    file.sync();
  }
}

// Rank 0 holds the headers besides its pieces.
std::vector<Extent> extents_of(const Job& job, bool with_headers) {
  std::vector<Extent> extents;
  for (const auto& [file, offset, bytes] : job.pieces) {
    extents.push_back({file, offset, offset + bytes.size()});
  }
  for (uint64_t i = 0; with_headers && i < job.files.size(); ++i) {
    extents.push_back({i, 0, job.files[i].header.size()});
  }
  return extents;
}

// What one rank writes of a save, step by step: the others see that it goes on.
class RangeWriter {
 public:
  RangeWriter(const Job& job, const Place& place, Exchange& exchange)
      : job_(job), place_(place), exchange_(exchange) {}

  void write(uint64_t file, uint64_t offset, Bytes bytes) {
    if (bytes.empty()) return;
    auto& target = files_[file];
    if (!target.file) target.file = File::open_to_write(path_of(job_, place_, file));
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min<uint64_t>(bytes.size(), kMaxRangeBytes));
      target.file.write_at(offset, part);
      ranges_.push_back({file, offset, offset + part.size(), digest(part)});
      target.unsynced += part.size();
      if (target.unsynced >= kSyncEvery) sync(target);
      exchange_.advance(part.size());
      offset += part.size();
      bytes = bytes.subspan(part.size());
    }
  }

  // All that was written lasts.
  const std::vector<WrittenRange>& finish() {
    for (auto& [index, target] : files_) sync(target);
    return ranges_;
  }

 private:
  struct Target {
    File file;
    uint64_t unsynced = 0;  // bytes
  };
  // The kernel takes bytes faster than a disk: without this, a save would seem to stand still for
  // as long as its one sync at the end takes.
  static constexpr uint64_t kSyncEvery = uint64_t{1} << 30;

  static void sync(Target& target) {
    if (target.unsynced > 0) target.file.sync();
    target.unsynced = 0;
  }

  const Job& job_;
  const Place& place_;
  Exchange& exchange_;
  std::map<uint64_t, Target> files_;
  std::vector<WrittenRange> ranges_;
};

// Takes the bytes that a rank holds, in any order: most go into the files, some to the rank that
// writes their page.
class RoutedWriter {
 public:
  RoutedWriter(RangeWriter& writer, Exchange& exchange, Routes routes)
      : writer_(writer), exchange_(exchange), routes_(std::move(routes)) {
    for (const auto& [bytes, from, to] : routes_.sends) {
      places_.push_back(outgoing_[to].size());
      outgoing_[to].resize(outgoing_[to].size() + bytes.end - bytes.begin);
    }
  }

  void take(uint64_t file, uint64_t offset, Bytes bytes) {
    const auto& sends = routes_.sends;
    auto send = std::ranges::upper_bound(
        sends, std::pair(file, offset), {},
        [](const Handover& one) { return std::pair(one.bytes.file, one.bytes.end); });
    while (!bytes.empty()) {
      const bool none = send == sends.end() || send->bytes.file != file;
      const uint64_t next = none ? offset + bytes.size() : std::max(send->bytes.begin, offset);
      const auto kept = bytes.first(std::min<uint64_t>(bytes.size(), next - offset));
      writer_.write(file, offset, kept);
      offset += kept.size();
      bytes = bytes.subspan(kept.size());
      if (bytes.empty()) return;
      const auto given = bytes.first(std::min<uint64_t>(bytes.size(), send->bytes.end - offset));
      const auto place = places_[static_cast<size_t>(send - sends.begin())];
      std::memcpy(outgoing_[send->to].data() + place + (offset - send->bytes.begin), given.data(),
                  given.size());
      offset += given.size();
      bytes = bytes.subspan(given.size());
      ++send;
    }
  }

  // Gives first: so nobody waits for a rank that waits.
  void finish() {
    for (const auto& [to, bytes] : outgoing_) exchange_.hand_over(to, bytes);
    std::map<int, std::vector<Extent>> incoming;
    for (const auto& [bytes, from, to] : routes_.receives) incoming[from].push_back(bytes);
    for (const auto& [from, extents] : incoming) {
      const auto text = exchange_.take_over(from);
      auto left = bytes_of(text);
      for (const auto& [file, begin, end] : extents) {
        if (left.size() < end - begin) throw IoError(fmt::format("rank {} sent too little", from));
        writer_.write(file, begin, left.first(end - begin));
        left = left.subspan(end - begin);
      }
    }
  }

 private:
  RangeWriter& writer_;
  Exchange& exchange_;
  Routes routes_;
  std::vector<size_t> places_;           // of each send, in the text for its rank
  std::map<int, std::string> outgoing_;  // by rank
};

std::vector<WrittenRange> write_pieces(const Job& job, const Place& place, Exchange& exchange,
                                       Routes routes) {
  RangeWriter writer(job, place, exchange);
  RoutedWriter routed(writer, exchange, std::move(routes));
  for (uint64_t i = 0; exchange.rank() == 0 && i < job.files.size(); ++i) {
    routed.take(i, 0, bytes_of(job.files[i].header));
  }
  for (size_t i = 0; i < job.pieces.size(); ++i) {
    const auto& piece = job.pieces[i];
    if (piece.bytes.empty()) continue;
    if (job.flow != nullptr) job.flow->await(i);
    routed.take(piece.file, piece.offset, piece.bytes);
    if (job.flow != nullptr) job.flow->written(i);
  }
  routed.finish();
  return writer.finish();
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
    make_folder_of(name, folder);
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
// move where the file system can, else in two, and stays until it is known that the move will last;
// one that is not this run's is set aside for good.
class Placement {
 public:
  Placement(fs::path temporary, const CommitOptions& options)
      : temporary_(std::move(temporary)),
        final_(options.output / checkpoint_name(options.step)),
        replaced_(final_) {
    // A link that leads nowhere is in the way too.
    const bool taken = fs::exists(fs::symlink_status(final_));
    if (taken && !is_of_run(options.output, final_, options.token)) {
      const auto aside = aside_name(final_, options.token);
      rename_path(final_, aside);
      log_info("{} is not a checkpoint of this run: it is {} now", final_.string(), aside.string());
    }
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

// A checkpoint that no reader takes is none.
std::string readable_manifest(Manifest manifest) {
  uint64_t bytes = 0;
  for (const auto& file : manifest.files) bytes += file.size;
  auto text = manifest_text(std::move(manifest));
  if (text.size() > manifest_limit(bytes)) {
    throw IoError(fmt::format("{} would have {} bytes; readers take {} for {} bytes of files",
                              kManifestName, text.size(), manifest_limit(bytes), bytes));
  }
  return text;
}

// What comes after the commit cannot undo it, and one part of it cannot keep another from being
// done. A process may have been frozen since its commit: the folder's name is asked about again.
void attempt(const CommitOptions& options, const std::function<void()>& part) {
  try {
    if (options.fence) options.fence();
    part();
  } catch (const std::exception& error) {
    log_warning("{} is saved, but: {}", checkpoint_name(options.step), error.what());
  }
}

// Gives up an older checkpoint where that was asked for.
bool make_room(const CommitOptions& options) try {
  if (options.save_total_limit <= 0) return false;
  if (options.fence) options.fence();  // another run's are not ours
  GiveUp what{.token = options.token, .keep_steps = options.protected_steps};
  what.keep_steps.push_back(options.step);
  return give_up_oldest(options.output, what);
} catch (const std::exception& error) {
  log_warning("{}", error.what());
  return false;
}

// `work` may be done several times.
void with_room(const CommitOptions& options, const std::function<void()>& work) {
  while (true) {
    try {
      return work();
    } catch (const DiskFull&) {
      if (!make_room(options)) throw;
    }
  }
}

// The names of all files last.
void sync_folders(const Job& job, const fs::path& folder) {
  std::set<fs::path> folders;
  for (const auto& file : job.files) folders.insert((folder / file.name).parent_path());
  for (const auto& [name, text] : job.texts) folders.insert((folder / name).parent_path());
  folders.insert(folder);
  for (const auto& one : folders) sync_directory(one);
}

Placement commit(const Job& job, const CommitOptions& options, const fs::path& temporary,
                 const std::vector<WrittenRange>& ranges) {
  with_room(options, [&] {
    Manifest manifest{
        .step = static_cast<uint64_t>(options.step),
        .run = options.token,
        .saved_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
        .conditions = options.conditions,
        .files = file_records(job, ranges)};
    write_texts(job, temporary, manifest.files);
    write_text(temporary / kManifestName, readable_manifest(std::move(manifest)));
  });
  sync_folders(job, temporary);
  if (options.fence) options.fence();
  Placement placement(temporary, options);
  try {
    placement.move_in();
    sync_directory(options.output);
  } catch (const IoError&) {
    placement.undo();  // a name that may be gone after a power cut is not a commit
    throw;
  }
  return placement;
}

// Removed first and written last: its steps say that the whole model is there.
const std::string kMark = "trainer_state.json";

void remove_other_shards(const Job& job, const fs::path& output) {
  for (const auto& entry : fs::directory_iterator(output)) {
    const auto name = entry.path().filename().string();
    const bool current = job.texts.contains(name) ||
                         std::any_of(job.files.begin(), job.files.end(),
                                     [&](const auto& file) { return file.name == name; });
    // With the description of an adapter that is gone, others would read the model as one.
    if (current || !(is_weights_name(name) || name == "adapter_config.json")) continue;
    log_info("removing {}, a part of an older model", entry.path().string());
    remove_tree(entry.path());
  }
}

void export_files(const Job& job, const CommitOptions& options, const std::string& suffix) {
  if (options.fence) options.fence();
  remove_tree(options.output / kMark);
  sync_directory(options.output);
  for (const auto& file : job.files) {
    rename_path(options.output / (file.name + suffix), options.output / file.name);
  }
  for (const auto& [name, text] : job.texts) {
    if (name == kMark) continue;
    with_room(options, [&] {
      make_folder_of(name, options.output);
      write_file_atomically(options.output / name, text);
    });
  }
  remove_other_shards(job, options.output);
  sync_folders(job, options.output);
  if (const auto mark = job.texts.find(kMark); mark != job.texts.end()) {
    with_room(options, [&] { write_file_atomically(options.output / kMark, mark->second); });
  }
}

using Steps = std::function<void(const std::vector<WrittenRange>& ranges)>;

// Never empty: an empty text means success.
std::string reason(const std::exception& error) {
  return *error.what() == '\0' ? "unknown failure" : error.what();
}

// How a save ended for rank 0.
struct Ending {
  std::string failure;  // empty: well
  bool disk_full = false;
};

// Rank 0's part: create, write, collect, then `finish`.
Ending lead(const Job& job, const CommitOptions& options, const Place& place, Exchange& exchange,
            const Steps& finish) {
  try {
    if (place.folder != options.output) make_new_directory(place.folder);
    with_room(options, [&] { create_files(job, place); });
    auto routes = exchange.agree_on_pages(extents_of(job, /*with_headers=*/true));
    exchange.announce_ready();
    auto ranges = write_pieces(job, place, exchange, std::move(routes));
    const auto others = exchange.collect();
    ranges.insert(ranges.end(), others.begin(), others.end());
    finish(ranges);
    return {};
  } catch (const DiskFull& error) {
    return {reason(error), true};
  } catch (const std::exception& error) {
    return {reason(error), false};
  }
}

// Rank 0 is told at once, whatever went wrong: otherwise it would wait until the deadline.
void write_and_report(const Job& job, const Place& place, Exchange& exchange) {
  std::vector<WrittenRange> ranges;
  try {
    ranges = write_pieces(job, place, exchange, exchange.ask_routes());
  } catch (const DiskFull& error) {
    return exchange.report_failure(reason(error), /*disk_full=*/true);
  } catch (const std::exception& error) {
    return exchange.report_failure(reason(error));
  }
  exchange.report(ranges);
}

std::string follow(const Job& job, const Place& place, Exchange& exchange) {
  try {
    exchange.tell_extents(extents_of(job, /*with_headers=*/false));
    exchange.await_ready();
    write_and_report(job, place, exchange);
    return exchange.await_result();
  } catch (const std::exception& error) {
    return reason(error);
  }
}

// The others learn the outcome even when it is bad; a store that is gone cannot make it worse.
void announce_result(Exchange& exchange, const std::string& failure, bool room_made = false) {
  if (exchange.is_given_up()) return;  // it was announced then
  try {
    exchange.announce_result(failure, room_made);
  } catch (const std::exception& error) {
    log_warning("cannot announce the end of a save: {}", error.what());
  }
}

// A save that was given up while a write hung is not committed when that returns.
CommitOptions fenced(CommitOptions options, const Exchange& exchange) {
  options.fence = [fence = std::move(options.fence), &exchange] {
    exchange.require_wanted();
    if (fence) fence();
  };
  return options;
}

// Before the others know of the commit: while they wait for that, nobody waits in a collective for
// this rank, whose disk may be slow.
void rotate(const CommitOptions& options, Exchange& exchange) {
  if (!options.rotates) return;
  remove_old_checkpoints(options.output,
                         {.limit = options.save_total_limit,
                          .written_step = options.step,
                          .token = options.token,
                          .protected_steps = options.protected_steps,
                          .on_read = [&](uint64_t bytes) { exchange.advance(bytes); }});
}

}  // namespace

std::string write_checkpoint(const Job& job, const CommitOptions& given, Exchange& exchange) {
  const auto options = fenced(given, exchange);
  const auto name = checkpoint_name(options.step);
  const Place place{options.output / fmt::format("{}.tmp-{}", name, options.token), ""};
  if (exchange.rank() != 0) return follow(job, place, exchange);

  std::optional<Placement> placement;
  const auto [failure, full] = lead(job, options, place, exchange, [&](const auto& ranges) {
    placement = commit(job, options, place.folder, ranges);
  });
  if (failure.empty()) {
    // Whether the save is still wanted does not matter any more: `given` asks for the folder alone.
    attempt(given, [&] { placement->remove_older(); });
    attempt(given, [&] { replace_symlink(given.output / "latest", name); });
    attempt(given, [&] { rotate(given, exchange); });
    announce_result(exchange, failure);
  } else if (exchange.is_given_up()) {  // and that was told
    remove_quietly(place.folder);
  } else {
    announce_result(exchange, failure);
    remove_quietly(place.folder);
    log_warning("{} was not saved; training goes on: {}", name, failure);
    if (full) make_room(options);  // for the next
  }
  return failure;
}

std::string write_model(const Job& job, const CommitOptions& given, Exchange& exchange) {
  const auto options = fenced(given, exchange);
  const Place place{options.output, ".tmp-" + options.token};
  if (exchange.rank() != 0) return follow(job, place, exchange);

  const auto [failure, full] = lead(job, options, place, exchange, [&](const auto& ranges) {
    manifest_text({.files = file_records(job, ranges)});  // throws if a byte was not written
    export_files(job, options, place.suffix);
  });
  for (uint64_t i = 0; i < job.files.size() && !failure.empty(); ++i) {
    remove_quietly(path_of(job, place, i));
  }
  announce_result(exchange, failure, full && make_room(options));
  return failure;
}

}  // namespace skein::checkpoint
