// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/spill/disk_rate.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <vector>

#include "skein/core/error.h"
#include "skein/core/random.h"
#include "skein/spill/spill_file.h"

namespace skein::spill {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = Transfer::Kind;

constexpr uint64_t kLeast = uint64_t{16} << 20;

// Memory for transfers, on large pages where there are some; more than caches hold, as arrays are.
class Buffer {
 public:
  static constexpr uint64_t kBytes = 48 * kUsualTransfer;

  Buffer() {
    void* memory =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw_errno("cannot get memory to measure a disk with");
    ::madvise(memory, kBytes, MADV_HUGEPAGE);
    memory_ = static_cast<std::byte*>(memory);
    fill();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::munmap(memory_, kBytes); }

  std::span<std::byte> bytes() const { return {memory_, kBytes}; }

 private:
  // No two blocks alike, and nothing that a disk could compress.
  void fill() {
    for (uint64_t at = 0; at < kBytes; at += sizeof(random::Words)) {
      const auto words = random::philox(/*key=*/0x5eed, at);
      std::memcpy(memory_ + at, &words, sizeof words);
    }
  }

  std::byte* memory_ = nullptr;
};

// One pass over the first bytes of a file, from front to back, by its owner.
struct Pass {
  uint64_t bytes = 0;
  double seconds = 0;

  double rate() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

struct PassLimits {
  size_t ahead = 20;  // transfers under way or ready; more than the disk has at once
  std::optional<Clock::time_point> deadline = std::nullopt;
};

Pass run_pass(SpillFile& file, Kind kind, uint64_t bytes, const Buffer& buffer,
              PassLimits limits = {}) {
  std::deque<SpillFile::Ticket> tickets;
  const auto begin = Clock::now();
  uint64_t offset = 0;
  for (; offset < bytes; offset += kUsualTransfer) {
    if (tickets.size() == limits.ahead) {
      file.wait(tickets.front());
      tickets.pop_front();
      if (limits.deadline && Clock::now() > *limits.deadline) break;
    }
    const auto memory = buffer.bytes().subspan(offset % Buffer::kBytes, kUsualTransfer);
    tickets.push_back(kind == Kind::kRead ? file.read(offset, memory) : file.write(offset, memory));
  }
  file.wait_all();
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  return {offset, seconds.count()};
}

uint64_t room_to_measure(const fs::path& folder, uint64_t bytes) {
  std::error_code failed;
  const auto space = fs::space(folder, failed);
  if (failed) return bytes;  // opening a file will say why
  const uint64_t room = std::min(bytes, space.available / 4);
  return room < kLeast ? 0 : room / kUsualTransfer * kUsualTransfer;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

RawSetting find_fastest(const File& file, uint64_t bytes, Kind kind, const Buffer& buffer) {
  RawSetting fastest;
  double best = 0;
  for (const auto& setting : raw_settings()) {
    const double rate = raw_rate(file, bytes, kind, setting, buffer.bytes());
    if (rate > best) fastest = setting;
    best = std::max(best, rate);
  }
  return fastest;
}

// The rounds of a bench, one way.
struct Rounds {
  std::vector<double> raw, spill, share;

  void add(double raw_rate, double spill_rate) {
    raw.push_back(raw_rate);
    spill.push_back(spill_rate);
    share.push_back(spill_rate / raw_rate);
  }
};

}  // namespace

QuickLook look_at_disk(const fs::path& folder, uint64_t bytes, std::chrono::milliseconds limit) {
  const uint64_t room = room_to_measure(folder, bytes);
  if (room == 0) return {};
  SpillFile file(folder, room, {.folder_key = "--path"});
  const Buffer buffer;
  const auto limits = [&] {
    // Few at once: what is under way when the time is up is still waited for.
    return PassLimits{.ahead = 8, .deadline = Clock::now() + limit / 2};
  };
  const auto written = run_pass(file, Kind::kWrite, room, buffer, limits());
  const auto read = run_pass(file, Kind::kRead, written.bytes, buffer, limits());
  return {{.read = read.rate(), .write = written.rate()},
          written.bytes,
          file.is_direct(),
          file.uses_io_uring()};
}

DiskBench bench_disk(const DiskBenchOptions& options) {
  const uint64_t bytes = (options.bytes + kUsualTransfer - 1) / kUsualTransfer * kUsualTransfer;
  SpillFile file(options.folder, bytes, {.folder_key = options.folder_key});
  const auto raw_file = create_raw_file(options.folder, bytes);
  const Buffer buffer;
  // The first writes of a file are slower: its blocks are marked as written.
  run_pass(file, Kind::kWrite, bytes, buffer);
  raw_rate(raw_file, bytes, Kind::kWrite, {}, buffer.bytes());

  DiskBench result{.bytes = bytes,
                   .raw_read_setting = find_fastest(raw_file, bytes, Kind::kRead, buffer),
                   .raw_write_setting = find_fastest(raw_file, bytes, Kind::kWrite, buffer),
                   .is_direct = file.is_direct(),
                   .uses_io_uring = file.uses_io_uring()};
  Rounds reads, writes;
  for (int round = 0; round < options.rounds; ++round) {
    for (const auto kind : {Kind::kWrite, Kind::kRead}) {
      const bool is_read = kind == Kind::kRead;
      const auto setting = is_read ? result.raw_read_setting : result.raw_write_setting;
      const double raw = raw_rate(raw_file, bytes, kind, setting, buffer.bytes());
      const double spill = run_pass(file, kind, bytes, buffer).rate();
      (is_read ? reads : writes).add(raw, spill);
    }
  }
  result.raw = {.read = median(reads.raw), .write = median(writes.raw)};
  result.spill = {.read = median(reads.spill), .write = median(writes.spill)};
  result.share = {.read = median(reads.share), .write = median(writes.share)};
  return result;
}

}  // namespace skein::spill
