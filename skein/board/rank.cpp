// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// The rank's side of a board: one page per process, and a thread that beats.
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "skein/board/board.h"
#include "skein/board/page.h"
#include "skein/core/clock.h"
#include "skein/core/error.h"

namespace skein::board {
namespace {

constexpr std::chrono::milliseconds kBeat{100};

// Never destroyed, and pages are never unmapped: the heartbeat and the carriers of collectives may
// run until the process is gone.
struct Writer {
  std::mutex mutex;                           // taken to write a cell
  std::atomic<Page*> page = nullptr;          // null: no board is attached, and nothing is written
  std::vector<std::shared_ptr<Page>> mapped;  // keeps every page mapped that was ever attached
  std::array<uint64_t, kNumCalls> sequences{};  // of the calls in the page's slots
  std::atomic<int> host_works = 0;
  pid_t beating = 0;  // the process that has the heartbeat: threads do not survive a fork
};

Writer& writer() {
  static auto& writer = *new Writer;
  return writer;
}

// The slot of a call is that of its number, or the next one whose call has ended; none when 256
// calls are under way.
CallSlot* free_slot(Writer& self, Page& page, uint64_t sequence) {
  for (size_t i = 0; i < kNumCalls; ++i) {
    const size_t index = (sequence + i) % kNumCalls;
    auto& slot = page.calls[index];
    if (slot.ended.load(std::memory_order_relaxed) != self.sequences[index]) continue;
    self.sequences[index] = sequence;
    return &slot;
  }
  return nullptr;
}

// How much work the process has done: CPU time and bytes moved.
struct Activity {
  int64_t cpu_ns = 0;
  int64_t bytes = 0;  // read and written, also from and to the page cache
};

Activity activity_now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  Activity now{.cpu_ns = int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
  const File file(::open("/proc/self/io", O_RDONLY | O_CLOEXEC));
  char text[256] = {};
  if (!file || ::read(file.descriptor(), text, sizeof text - 1) <= 0) return now;
  long long in = 0, out = 0;
  if (std::sscanf(text, "rchar: %lld wchar: %lld", &in, &out) == 2) now.bytes = in + out;
  return now;
}

bool is_work(const Activity& before, const Activity& after) {
  return after.cpu_ns - before.cpu_ns > std::chrono::nanoseconds(kBeat).count() / 10 ||
         after.bytes - before.bytes > int64_t{64} << 10;
}

void beat_for_ever() {
  std::optional<Activity> before;
  for (;; std::this_thread::sleep_for(kBeat)) {
    auto& page = *writer().page.load();
    page.beat = now_ns(page);
    if (writer().host_works == 0) {
      before.reset();
      continue;
    }
    const auto now = activity_now();
    if (before && is_work(*before, now)) page.progressed = now_ns(page);
    before = now;
  }
}

// Blocks all signals, so that the kernel gives them to the threads that handle them.
void start_heartbeat() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(beat_for_ever).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void attach(std::shared_ptr<Page> page) {
  auto& self = writer();
  const std::lock_guard lock(self.mutex);
  page->beat = page->progressed = now_ns(*page);
  Clock::count_pauses_in(page->paused);
  page->pid = ::getpid();
  self.sequences = {};
  self.mapped.push_back(std::move(page));
  self.page = self.mapped.back().get();
  if (std::exchange(self.beating, ::getpid()) != ::getpid()) start_heartbeat();
}

// Runs `write(page)` where there is a page, one at a time.
template <typename Write>
void with_page(const Write& write) {
  auto& self = writer();
  if (self.page.load(std::memory_order_relaxed) == nullptr) return;
  const std::lock_guard lock(self.mutex);
  write(*self.page.load());
}

}  // namespace

void attach_board(int descriptor) {
  attach(map_page(descriptor, MapPage::kWrite,
                  fmt::format("the board inherited as descriptor {}", descriptor)));
}

void attach_board_file(const fs::path& path, int rank) {
  // The old file is replaced, not truncated: a reader of an earlier start still maps it.
  std::error_code ignored;
  fs::remove(path, ignored);
  const auto file = File::create(path, File::Access::kReadWrite);
  // The blocks are allocated now: a store into a page without room on the disk is a SIGBUS.
  if (const int error = ::posix_fallocate(file.descriptor(), 0, sizeof(Page)); error != 0) {
    errno = error;
    throw_errno("cannot make " + path.string());
  }
  auto page = map_page(file.descriptor(), MapPage::kMake, path.string());
  page->rank = rank;
  attach(std::move(page));
}

bool has_board() { return writer().page.load(std::memory_order_relaxed) != nullptr; }

std::optional<BoardView> own_board(size_t most) {
  const Page* page = writer().page.load();
  if (page == nullptr) return std::nullopt;
  return view_of(*page, most);
}

uint64_t begin_call(std::string_view group, std::string_view operation, std::string_view dtype,
                    uint64_t count, std::string_view site) {
  uint64_t sequence = 0;
  with_page([&](Page& page) {
    sequence = page.issued.load(std::memory_order_relaxed) + 1;
    const int64_t now = now_ns(page);
    if (auto* slot = free_slot(writer(), page, sequence)) {
      const bool in_step = page.steps_begun.load(std::memory_order_relaxed) > 0;
      CallRecord record;
      record.sequence = sequence;
      record.count = count;
      record.step = in_step ? page.step.load(std::memory_order_relaxed) + 1 : 0;
      record.issued = now;
      record.group.set(group);
      record.operation.set(operation);
      record.dtype.set(dtype);
      record.site.set(site);
      slot->call.write(record);
    }
    page.issued.store(sequence, std::memory_order_release);
    page.progressed.store(now, std::memory_order_relaxed);
  });
  return sequence;
}

void end_call(uint64_t sequence) {
  if (sequence == 0) return;
  with_page([&](Page& page) {
    const auto& sequences = writer().sequences;
    for (size_t i = 0; i < kNumCalls; ++i) {
      const size_t index = (sequence + i) % kNumCalls;
      if (sequences[index] != sequence) continue;
      page.calls[index].ended.store(sequence, std::memory_order_release);
      break;
    }
    page.progressed.store(now_ns(page), std::memory_order_relaxed);
  });
}

void enter_phase(Phase phase) {
  with_page([&](Page& page) {
    page.phase = static_cast<int64_t>(phase);
    page.phase_entered = page.progressed = now_ns(page);
  });
}

void set_board_step(int64_t step, std::span<const int64_t> samples) {
  with_page([&](Page& page) {
    Samples kept{};
    kept.count = std::min<int64_t>(std::ssize(samples), std::ssize(kept.ids));
    std::copy_n(samples.begin(), kept.count, kept.ids.begin());
    page.samples.write(kept);
    page.step = step;
    ++page.steps_begun;
    page.progressed = now_ns(page);
  });
}

void report_progress(std::string_view what) {
  with_page([&](Page& page) {
    Text<128> text;
    text.set(what);
    page.progress.write(text);
    page.progressed = now_ns(page);
  });
}

void report_failure(std::string_view message) {
  with_page([&](Page& page) {
    Text<1024> text;
    text.set(message);
    page.message.write(text);
  });
}

void report_out_of_memory() {
  with_page([](Page& page) { page.out_of_memory = 1; });
}

HostWork::HostWork(std::string_view what) {
  report_progress(what);
  ++writer().host_works;
}

HostWork::~HostWork() {
  --writer().host_works;
  report_progress("");
}

}  // namespace skein::board
