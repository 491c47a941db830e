// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// How a page lies in memory. Two processes of one build share it; it is no stored format.
//
// A cell is written by one process and read by another at any time. Its version is odd while it is
// being written: a reader that sees an odd version, or another one after copying, drops its copy.
// So a rank that is killed in the middle of a write loses that cell and nothing else.

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "skein/board/board.h"

namespace skein::board {

static_assert(std::atomic<uint64_t>::is_always_lock_free);

template <typename T>
class Cell {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);
  using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;

 public:
  // One writer at a time.
  void write(const T& value) {
    Words words;
    std::memcpy(words.data(), &value, sizeof value);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version | 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_relaxed);
    version_.store((version | 1) + 1, std::memory_order_release);
  }

  // Nothing while it is being written, which lasts for ever if the writer was killed meanwhile.
  std::optional<T> read() const {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const uint64_t before = version_.load(std::memory_order_acquire);
      Words words;
      for (size_t i = 0; i < words.size(); ++i)
        words[i] = words_[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 != 0 || version_.load(std::memory_order_relaxed) != before) continue;
      T value;
      std::memcpy(&value, words.data(), sizeof value);
      return value;
    }
    return std::nullopt;
  }

 private:
  std::atomic<uint64_t> version_;
  std::array<std::atomic<uint64_t>, sizeof(T) / sizeof(uint64_t)> words_;
};

// Cut to fit; ends with a zero byte.
template <size_t N>
struct Text {
  char bytes[N];

  void set(std::string_view text) {
    const size_t length = text.copy(bytes, N - 1);
    std::memset(bytes + length, 0, N - length);
  }
  std::string get() const { return {bytes, ::strnlen(bytes, N)}; }
};

// A call from its issue; `ended` stays out, so that any thread can end it with one store.
struct CallRecord {
  uint64_t sequence;
  uint64_t count;
  int64_t step;
  int64_t issued;  // now_ns(), as all times here
  Text<16> group;
  Text<32> operation;
  Text<16> dtype;
  Text<48> site;
};

struct CallSlot {
  Cell<CallRecord> call;
  std::atomic<uint64_t> ended;  // the sequence number of the newest call here that has ended
};

struct Samples {
  int64_t count;
  std::array<int64_t, 64> ids;
};

inline constexpr size_t kNumCalls = 256;

struct Page {
  std::atomic<uint64_t> magic;  // kPageMagic
  std::atomic<uint64_t> bytes;  // sizeof(Page): another build's page is refused
  std::atomic<int64_t> rank;
  std::atomic<int64_t> pid;     // 0 until the rank has attached the page
  std::atomic<int64_t> paused;  // nanoseconds that the launcher has stopped the rank for
  std::atomic<int64_t> beat;
  std::atomic<int64_t> progressed;
  std::atomic<int64_t> phase;
  std::atomic<int64_t> phase_entered;
  std::atomic<int64_t> step;
  std::atomic<int64_t> steps_begun;
  std::atomic<uint64_t> issued;
  std::atomic<int64_t> out_of_memory;
  Cell<Samples> samples;
  Cell<Text<128>> progress;
  Cell<Text<1024>> message;
  std::array<CallSlot, kNumCalls> calls;
};

inline constexpr uint64_t kPageMagic = 0x31'64'72'61'6f'62'6b'73;  // "skboard1"

// Maps the page that lies in the file and checks that it is one of this build, else throws IoError.
// kMake first makes it of a file of zeros.
enum class MapPage { kRead, kWrite, kMake };
std::shared_ptr<Page> map_page(int descriptor, MapPage how, const std::string& name);
BoardView view_of(const Page& page, size_t most);

// One clock for all that look at the page: it stands still while its launcher stops the rank.
inline int64_t now_ns(const Page& page) {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec - page.paused;
}

}  // namespace skein::board
