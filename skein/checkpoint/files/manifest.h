// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// manifest.json: which bytes make up a checkpoint, and are they all there?
//
// The format is docs/checkpoint_format.md.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/core/file.h"

namespace skein::checkpoint {

// Stored on disk: a reader refuses later versions. A manifest has the first that can say it.
//   1   plain names
//   2   names may have a folder
inline constexpr uint64_t kFormatVersion = 2;
inline constexpr std::string_view kManifestName = "manifest.json";
// Digests are taken over pieces of at most this size, so that a verifier needs little memory.
inline constexpr uint64_t kMaxRangeBytes = uint64_t{16} << 20;

struct DigestedRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string digest;  // XXH3-128 of the bytes [begin, end)
};

struct FileRecord {
  std::string name;  // is_file_name()
  uint64_t size = 0;
  std::vector<DigestedRange> ranges;  // sorted, covering [0, size)
};

// What must be the same for a resumed run to repeat the undisturbed one byte for byte.
struct RunConditions {
  uint64_t size = 1;        // ranks
  uint64_t stage = 0;       // of sharding
  std::string tier = "T1";  // what a resume under the same conditions gives
  uint64_t threads = 1;     // per rank
  std::string device;       // CPU or GPU model
  std::string binary;       // digest of the program
};

struct Manifest {
  uint64_t step = 0;
  std::string run;       // token of the start that wrote it
  std::string saved_at;  // for people
  RunConditions conditions;
  std::vector<FileRecord> files;  // by name
};

struct Problem {
  std::string file;
  std::string tensor;  // empty where the file has none there
  std::string text;
  bool unreadable = false;  // the disk did not answer: nothing is known about the bytes

  std::string message() const;
};

// "T1" when `saved` promised it and nothing has changed, else "T2".
std::string resume_tier(const RunConditions& saved, const RunConditions& now);
// This machine and this program.
RunConditions current_conditions(uint64_t size, uint64_t stage, uint64_t threads);

// How long the manifest of so many bytes of files may be. A range takes 90 bytes at most: this is
// room for 70 B parameters with their moments on 100,000 ranks, and no reader takes a file for one
// that is far larger than what it describes.
constexpr uint64_t manifest_limit(uint64_t file_bytes) {
  return (uint64_t{256} << 20) + file_bytes / 256;
}

// Sorts files and ranges. Throws IoError naming the first byte that no range covers.
std::string manifest_text(Manifest manifest);
Manifest parse_manifest(std::string_view text, std::string_view file);
// The accepted manifest of a checkpoint. Throws IoError; SystemFailure where it could not be read.
Manifest read_manifest(const fs::path& folder);

// Ranks that verify a checkpoint together: each digests its share of the bytes.
struct Share {
  int rank = 0;
  int size = 1;
  std::function<void(uint64_t bytes)> on_read = {};  // told as it goes on
};

// Reads every byte of this share; names and sizes are looked at by all. Empty when it is whole.
// What cannot be read is tried again (core/system_failure.h), then a problem that says so.
// `manifest`, when given, receives the accepted manifest.
std::vector<Problem> verify(const fs::path& folder, Manifest* manifest = nullptr,
                            const Share& share = {});
// The same without the bytes of the optimizer.
std::vector<Problem> verify_model(const fs::path& folder);

}  // namespace skein::checkpoint
