// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/board/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "skein/board/page.h"
#include "skein/core/error.h"

namespace skein::board {
namespace {

int64_t milliseconds_between(int64_t from, int64_t until) {
  return std::max<int64_t>(0, until - from) / 1'000'000;
}

struct TimedCall {
  Call call;
  int64_t issued = 0;
};

std::vector<TimedCall> calls_of(const Page& page, int64_t now) {
  std::vector<TimedCall> calls;
  for (const auto& slot : page.calls) {
    // Read before the copy: if the slot is given to another call meanwhile, that one counts as
    // open.
    const uint64_t ended = slot.ended.load(std::memory_order_acquire);
    const auto record = slot.call.read();
    if (!record || record->sequence == 0) continue;
    calls.push_back({{.sequence = record->sequence,
                      .group = record->group.get(),
                      .operation = record->operation.get(),
                      .dtype = record->dtype.get(),
                      .count = record->count,
                      .step = record->step,
                      .site = record->site.get(),
                      .age_ms = milliseconds_between(record->issued, now),
                      .done = ended == record->sequence},
                     record->issued});
  }
  std::ranges::sort(calls, {}, [](const TimedCall& timed) { return timed.call.sequence; });
  return calls;
}

std::vector<int64_t> gaps_of(const std::vector<TimedCall>& calls) {
  std::vector<int64_t> gaps;
  for (size_t i = 1; i < calls.size(); ++i) {
    if (calls[i].call.sequence != calls[i - 1].call.sequence + 1) continue;
    gaps.push_back(milliseconds_between(calls[i - 1].issued, calls[i].issued));
  }
  std::ranges::sort(gaps);
  return gaps;
}

std::vector<Call> newest_calls(std::vector<TimedCall> timed, size_t most) {
  size_t finished = static_cast<size_t>(
      std::ranges::count_if(timed, [](const TimedCall& one) { return one.call.done; }));
  std::vector<Call> calls;
  for (auto& one : timed) {
    if (!one.call.done || finished-- <= most) calls.push_back(std::move(one.call));
  }
  return calls;
}

void make_page(Page& page) {
  const int64_t now = now_ns(page);
  page.bytes = sizeof(Page);
  page.beat = page.progressed = page.phase_entered = now;
  page.magic = kPageMagic;
}

}  // namespace

const char* name_of(Phase phase) {
  constexpr const char* kNames[kNumPhases] = {
      "starting", "joining", "loading",  "data", "forward", "backward", "optimizer",
      "rollout",  "reward",  "evaluate", "save", "other",   "ending"};
  return kNames[static_cast<uint32_t>(phase)];
}

std::string describe(const Call& call) {
  const auto step = call.step > 0 ? fmt::format("step {}, ", call.step) : "";
  return fmt::format("call #{}, {} of {} {} ({}{})", call.sequence, call.operation, call.count,
                     call.dtype, step, call.site);
}

bool same_call(const Call& left, const Call& right) {
  return left.operation == right.operation && left.count == right.count &&
         left.dtype == right.dtype && left.group == right.group;
}

std::shared_ptr<Page> map_page(int descriptor, MapPage how, const std::string& name) {
  const off_t size = ::lseek(descriptor, 0, SEEK_END);  // works for memfds and regular files alike
  if (size < 0) throw_errno("cannot look at " + name);
  if (static_cast<uint64_t>(size) != sizeof(Page)) {
    throw IoError(fmt::format("{} has {} bytes; a rank's board has {}", name, size, sizeof(Page)));
  }
  const int protection = how == MapPage::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* memory = ::mmap(nullptr, sizeof(Page), protection, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw_errno("cannot map " + name);
  std::shared_ptr<Page> page(static_cast<Page*>(memory),
                             [](Page* mapped) { ::munmap(mapped, sizeof(Page)); });
  if (how == MapPage::kMake) make_page(*page);
  if (page->magic != kPageMagic || page->bytes != sizeof(Page)) {
    throw IoError(name + " is no rank's board of this version of skein");
  }
  return page;
}

BoardView view_of(const Page& page, size_t most) {
  BoardView view{.rank = static_cast<int>(page.rank),
                 .pid = page.pid,
                 .phase = static_cast<Phase>(std::clamp<int64_t>(page.phase, 0, kNumPhases - 1)),
                 .step = page.step,
                 .steps_here = std::max<int64_t>(0, page.steps_begun - 1),
                 .out_of_memory = page.out_of_memory != 0,
                 .issued = page.issued.load(std::memory_order_acquire)};
  if (const auto text = page.progress.read()) view.progress = text->get();
  if (const auto text = page.message.read()) view.message = text->get();
  if (const auto samples = page.samples.read()) {
    const auto count = std::clamp<int64_t>(samples->count, 0, std::ssize(samples->ids));
    view.samples.assign(samples->ids.begin(), samples->ids.begin() + count);
  }
  const int64_t now = now_ns(page);
  view.phase_ms = milliseconds_between(page.phase_entered, now);
  view.beat_ms = milliseconds_between(page.beat, now);
  view.progress_ms = milliseconds_between(page.progressed, now);
  auto calls = calls_of(page, now);
  view.gaps_ms = gaps_of(calls);
  view.calls = newest_calls(std::move(calls), most);
  return view;
}

Board::Board(File file, std::shared_ptr<const Page> page)
    : file_(std::move(file)), page_(std::move(page)) {}

Board::Board(int rank) : file_(::memfd_create("skein-board", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!file_) throw_errno("cannot make a rank's board (memfd)");
  file_.resize(sizeof(Page));
  // If a rank could shrink the file, reading the page would end the launcher with SIGBUS.
  if (::fcntl(descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw_errno("cannot seal a rank's board");
  }
  const auto page =
      map_page(descriptor(), MapPage::kMake, fmt::format("the board of rank {}", rank));
  page->rank = rank;
  page_ = made_here_ = page;
}

Board Board::open_file(const fs::path& path) {
  auto file = File::open_to_read(path);
  auto page = map_page(file.descriptor(), MapPage::kRead, path.string());
  return {std::move(file), std::move(page)};
}

void Board::forgive(std::chrono::nanoseconds paused) {
  if (made_here_) made_here_->paused += paused.count();
}

BoardView Board::read(size_t most) const { return view_of(*page_, most); }

}  // namespace skein::board
