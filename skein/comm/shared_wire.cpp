// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Each rank has two buffers and a mark. It writes a piece into one of its buffers, counts it on its
// mark, waits until all others have counted theirs, and reads those. Then the next piece, in the
// other buffer.
//
// Two buffers are enough, and nobody says what he has read: a rank writes piece k after all have
// counted piece k - 1, and who has counted that is done with reading piece k - 2, which lay in the
// same buffer.
//
// Who waits spins for a moment and then sleeps on the other's mark (a futex). Every tenth of a
// second he looks whether the other still lives: each rank holds a lock on a byte of the file,
// which the kernel releases with the process, whatever ended it.
#include "skein/comm/shared_wire.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "skein/comm/ordered_sum.h"
#include "skein/core/clock.h"
#include "skein/core/error.h"
#include "skein/core/file.h"
#include "skein/core/host.h"
#include "skein/core/log.h"

namespace skein::comm {
namespace {

constexpr size_t kBuffer = 512 << 10;  // two per rank: they stay in the second-level cache
constexpr size_t kLine = 64;           // of a cache; pieces begin on one
constexpr int kSpins = 200;            // some microseconds: the core may be needed for computing
constexpr std::chrono::milliseconds kLook(100);
constexpr const char* kName = "skein-ranks";

struct alignas(kLine) Mark {
  std::atomic<uint32_t> pieces;   // written so far, modulo 2^32
  std::atomic<uint32_t> waiting;  // ranks that sleep on the number above
  // Of the pieces in the two buffers: what call they are of.
  std::array<std::atomic<uint64_t>, 2> kinds;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct alignas(kLine) Header {
  uint64_t token;
};

// What the ranks tell each other when they meet.
struct Offer {
  std::array<char, 128> machine;  // empty: none
  std::array<char, 64> path;      // rank 0's: of the memory
  uint64_t token;
};

template <size_t kSize>
void put(std::array<char, kSize>& to, const std::string& text) {
  SKEIN_CHECK(text.size() < kSize, "no room for " + text);
  std::memcpy(to.data(), text.c_str(), text.size() + 1);
}

// One kernel, one view of processes and networks.
std::string this_machine() {
  return fmt::format("{} {} {}", boot_id(), fs::read_symlink("/proc/self/ns/pid").string(),
                     fs::read_symlink("/proc/self/ns/net").string());
}

// The memory of a group, mapped.
class Region {
 public:
  // Makes it. All zero but the token.
  Region(int size, uint64_t token) : file_(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    if (!file_) throw_errno("cannot make memory for all ranks (memfd)");
    file_.reserve(bytes_of(size));
    // Who shrinks it would end the others with SIGBUS.
    if (::fcntl(file_.descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      throw_errno("cannot seal the memory of all ranks");
    }
    map(size);
    header().token = token;
  }

  // That of another rank. The name is looked at first: who opens a device or a pipe has done
  // something to it.
  Region(int size, uint64_t token, const fs::path& path) {
    const auto name = fs::read_symlink(path).string();
    if (!name.starts_with(fmt::format("/memfd:{}", kName))) {
      throw IoError(fmt::format("{} is {}", path.string(), name));
    }
    file_ = File(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!file_) throw_errno("cannot open " + path.string());
    const off_t found = ::lseek(file_.descriptor(), 0, SEEK_END);
    if (found != static_cast<off_t>(bytes_of(size))) {
      throw IoError(fmt::format("{} has {} bytes", path.string(), found));
    }
    map(size);
    if (header().token != token) throw IoError(path.string() + " is another group's memory");
  }

  // As others of this machine may open it.
  std::string path() const {
    return fmt::format("/proc/{}/fd/{}", fs::read_symlink("/proc/self").string(),
                       file_.descriptor());
  }

  Mark& mark(int rank) { return reinterpret_cast<Mark*>(memory_.get() + sizeof(Header))[rank]; }
  std::byte* buffer(int rank, uint32_t piece) {
    return buffers_ + kBuffer * (2 * static_cast<size_t>(rank) + piece % 2);
  }

  // The sign of life: a lock of this open file, so that ranks may be threads, too.
  void hold(int rank) {
    auto lock = lock_on(rank, F_WRLCK);
    if (::fcntl(file_.descriptor(), F_OFD_SETLK, &lock) != 0) throw_errno("cannot lock a byte");
  }
  bool is_held(int rank) const {
    auto lock = lock_on(rank, F_WRLCK);
    return ::fcntl(file_.descriptor(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }
  void release(int rank) {
    auto lock = lock_on(rank, F_UNLCK);
    ::fcntl(file_.descriptor(), F_OFD_SETLK, &lock);
  }

 private:
  static size_t before_buffers(int size) {
    const size_t bytes = sizeof(Header) + sizeof(Mark) * static_cast<size_t>(size);
    return (bytes + 4095) / 4096 * 4096;
  }
  static size_t bytes_of(int size) {
    return before_buffers(size) + 2 * kBuffer * static_cast<size_t>(size);
  }
  static struct flock lock_on(int rank, short type) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = rank;
    lock.l_len = 1;
    return lock;
  }

  void map(int size) {
    const size_t bytes = bytes_of(size);
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.descriptor(), 0);
    if (memory == MAP_FAILED) throw_errno("cannot map the memory of all ranks");
    memory_ = {static_cast<std::byte*>(memory), [bytes](void* start) { ::munmap(start, bytes); }};
    buffers_ = memory_.get() + before_buffers(size);
  }
  Header& header() { return *reinterpret_cast<Header*>(memory_.get()); }

  File file_;
  std::shared_ptr<std::byte> memory_;
  std::byte* buffers_ = nullptr;
};

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout,
                   nullptr, 0);
}

// Until the word is no longer `seen`, somebody wakes us, or it is time to look around.
void sleep_on(Mark& mark, uint32_t seen) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kLook).count()};
  ++mark.waiting;  // before the kernel compares the number: who counts on looks here afterwards
  futex(mark.pieces, FUTEX_WAIT, seen, &timeout);
  --mark.waiting;
}

void wake_all(Mark& mark) {
  futex(mark.pieces, FUTEX_WAKE, static_cast<uint32_t>(std::numeric_limits<int>::max()), nullptr);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

enum class Pattern : uint64_t { kGather, kScatter, kBroadcast };

// Different for calls that do not belong together. `detail`: the type, or the root.
uint64_t kind_of(Pattern pattern, size_t bytes, int detail) {
  return (bytes << 16) | (static_cast<uint64_t>(detail) << 2) | static_cast<uint64_t>(pattern);
}

class SharedWire final : public Wire {
 public:
  SharedWire(int rank, int size, std::unique_ptr<Region> region, std::chrono::milliseconds timeout)
      : Wire(rank, size),
        region_(std::move(region)),
        timeout_(timeout),
        pieces_(static_cast<size_t>(size)) {}
  ~SharedWire() override { leave(); }

  void gather(std::byte* all, size_t part) override {
    in_cuts(part, kBuffer, [&](Cut cut) { gather_piece(all, part, cut); });
  }
  void scatter(const Reduction& reduction) override {
    in_cuts(reduction.part(), room(), [&](Cut cut) { scatter_piece(reduction, cut); });
  }
  // Piece by piece: what was summed or sent a moment ago is still in the cache.
  void reduce(const Reduction& reduction) override {
    in_cuts(reduction.part(), room(), [&](Cut cut) {
      scatter_piece(reduction, cut);
      gather_piece(reduction.whole, reduction.part(), cut);
    });
  }

  void broadcast(std::byte* data, size_t size, int root) override {
    in_cuts(size, kBuffer, [&](Cut cut) {
      exchange(
          kind_of(Pattern::kBroadcast, size, root),
          [&](std::byte* own) {
            if (rank() == root) std::memcpy(own, data + cut.begin, cut.length);
          },
          [&](int peer, const std::byte* theirs) {
            if (peer == root) std::memcpy(data + cut.begin, theirs, cut.length);
          });
    });
  }

 private:
  // Bytes of a part.
  struct Cut {
    size_t begin, length;
  };
  static void in_cuts(size_t bytes, size_t most, const auto& take) {
    for (size_t begin = 0; begin < bytes; begin += most) {
      take(Cut{begin, std::min(most, bytes - begin)});
    }
  }

  void gather_piece(std::byte* all, size_t part, Cut cut) {
    const auto place = [&](int owner) {
      return all + part * static_cast<size_t>(owner) + cut.begin;
    };
    exchange(
        kind_of(Pattern::kGather, part, 0),
        [&](std::byte* own) { std::memcpy(own, place(rank()), cut.length); },
        [&](int peer, const std::byte* theirs) { std::memcpy(place(peer), theirs, cut.length); });
  }

  // Of a scatter, a buffer holds one piece for each other rank.
  size_t room() const { return kBuffer / static_cast<size_t>(size() - 1) / kLine * kLine; }

  void scatter_piece(const Reduction& reduction, Cut cut) {
    const auto mine = [&](int owner) {
      return reduction.whole + reduction.part() * static_cast<size_t>(owner) + cut.begin;
    };
    const auto place = [&](int of, int in) { return room() * static_cast<size_t>(of - (of > in)); };
    pieces_[rank()] = mine(rank());
    exchange(
        kind_of(Pattern::kScatter, reduction.part(), static_cast<int>(reduction.type)),
        [&](std::byte* own) {
          for (int peer = 0; peer < size(); ++peer) {
            if (peer != rank()) std::memcpy(own + place(peer, rank()), mine(peer), cut.length);
          }
        },
        [&](int peer, const std::byte* theirs) { pieces_[peer] = theirs + place(rank(), peer); },
        [&] {
          ordered_sum(reduction.type, reduction.shard + cut.begin, pieces_,
                      static_cast<int64_t>(cut.length / c10::elementSize(reduction.type)));
        });
  }

  // One piece: `write` fills this rank's buffer, `read` takes that of each other rank, in rank
  // order, and `end` comes before any of them is written again.
  void exchange(uint64_t kind, const auto& write, const auto& read, const auto& end) {
    write(region_->buffer(rank(), piece_));
    count(kind);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      wait_for(peer, kind);
      read(peer, region_->buffer(peer, piece_));
    }
    end();
    ++piece_;
  }
  void exchange(uint64_t kind, const auto& write, const auto& read) {
    exchange(kind, write, read, [] {});
  }

  void count(uint64_t kind) {
    auto& mark = region_->mark(rank());
    mark.kinds[piece_ % 2].store(kind, std::memory_order_relaxed);
    mark.pieces.store(piece_ + 1);  // sequentially consistent, as the number of those who wait
    if (mark.waiting.load() != 0) wake_all(mark);
  }

  bool has_come(Mark& mark, uint64_t kind) const {
    const auto ahead = static_cast<int32_t>(mark.pieces.load() - piece_);
    return ahead > 0 && mark.kinds[piece_ % 2].load(std::memory_order_relaxed) == kind;
  }

  void wait_for(int peer, uint64_t kind) {
    auto& mark = region_->mark(peer);
    for (int spin = 0; spin < kSpins; ++spin, relax()) {
      if (has_come(mark, kind)) return;
    }
    for (const auto start = skein::Clock::now();;) {
      const uint32_t seen = mark.pieces.load();
      if (has_come(mark, kind)) return;
      look_after(peer, start, mark, kind);
      sleep_on(mark, seen);
    }
  }

  // Throws when there is nothing more to wait for.
  void look_after(int peer, Time start, Mark& mark, uint64_t kind) {
    std::string problem;
    if (!region_->is_held(peer)) {
      if (has_come(mark, kind)) return;  // the last thing it did
      problem = fmt::format("rank {} has left", peer);
    } else if (skein::Clock::now() - start > timeout_) {
      problem = fmt::format("timed out waiting for rank {}", peer);
    } else {
      return;
    }
    leave();
    throw CommError(problem);
  }

  // Those who wait for this rank wake up and see it.
  void leave() {
    region_->release(rank());
    wake_all(region_->mark(rank()));
  }

  std::unique_ptr<Region> region_;
  std::chrono::milliseconds timeout_;
  std::vector<const void*> pieces_;  // of a sum, in rank order
  uint32_t piece_ = 0;               // that is next, or under way
};

// Brings each rank what the others have.
template <typename T>
std::vector<T> exchange_values(Wire& meeting, const T& own) {
  std::vector<T> all(static_cast<size_t>(meeting.size()));
  all[meeting.rank()] = own;
  meeting.gather(reinterpret_cast<std::byte*>(all.data()), sizeof(T));
  return all;
}

uint64_t draw_token() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

bool all_on_one_machine(const std::vector<Offer>& offers) {
  return offers.front().machine[0] != '\0' && std::ranges::all_of(offers, [&](const Offer& offer) {
           return offer.machine == offers.front().machine;
         });
}

// `attempt`, or nothing and the reason.
template <typename Attempt>
void try_to(std::string& problem, const Attempt& attempt) {
  try {
    attempt();
  } catch (const std::exception& error) {
    problem = error.what();
  }
}

}  // namespace

std::unique_ptr<Wire> share_memory(Wire& meeting, bool wanted, std::chrono::milliseconds timeout) {
  std::unique_ptr<Region> region;
  std::string problem = wanted ? "" : "switched off";
  Offer own{};
  if (wanted) {
    try_to(problem, [&] {
      if (meeting.rank() == 0) {
        own.token = draw_token();
        region = std::make_unique<Region>(meeting.size(), own.token);
        put(own.path, region->path());
      }
      put(own.machine, this_machine());
    });
  }
  const auto offers = exchange_values(meeting, own);
  if (!all_on_one_machine(offers)) {
    log_debug("comm: tensors go over sockets: {}",
              problem.empty() ? "not all ranks are here, or want to share memory" : problem);
    return nullptr;
  }
  try_to(problem, [&] {
    if (!region) {
      const auto& offer = offers.front();
      region = std::make_unique<Region>(meeting.size(), offer.token, offer.path.data());
    }
    region->hold(meeting.rank());
  });
  const auto ready = exchange_values(meeting, static_cast<uint64_t>(problem.empty()));
  if (std::ranges::find(ready, uint64_t{0}) != ready.end()) {
    log_debug("comm: tensors go over sockets: {}",
              problem.empty() ? "another rank cannot open the memory of rank 0" : problem);
    return nullptr;
  }
  log_debug("comm: tensors go through memory that {} ranks share", meeting.size());
  return std::make_unique<SharedWire>(meeting.rank(), meeting.size(), std::move(region), timeout);
}

}  // namespace skein::comm
