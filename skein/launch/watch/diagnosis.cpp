// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <vector>

namespace skein::launch {
namespace {

constexpr int64_t kMismatchMs = 1000;
constexpr int64_t kSilenceMs = 30'000;  // without a heartbeat, of a process that is not stopped
constexpr int64_t kStaleMs = 4'000;     // the same where others wait in vain already, at least
constexpr int64_t kLeastAdaptiveMs = 10'000;

using Ranks = std::span<const RankView>;

std::string seconds(int64_t milliseconds) {
  return fmt::format("{:.1f} s", static_cast<double>(milliseconds) / 1e3);
}

std::string who(const RankView& rank) {
  const auto pid = rank.board.pid > 0 ? fmt::format(" (pid {})", rank.board.pid) : "";
  return fmt::format("rank {} on {}{}", rank.board.rank, rank.host, pid);
}

// "in backward of step 12"
std::string where(const board::BoardView& board) {
  switch (board.phase) {
    case board::Phase::kStarting:
      return "while starting";
    case board::Phase::kJoining:
      return "while joining the others";
    case board::Phase::kLoading:
      return "while loading";
    case board::Phase::kEnding:
      return "while ending";
    case board::Phase::kOther:
      return fmt::format("in step {}", board.step + 1);
    default:
      return fmt::format("in {} of step {}", name_of(board.phase), board.step + 1);
  }
}

// "rank 3", "ranks 0, 2, 4-7"
std::string list(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const size_t first = i;
    while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
    text += text.empty() ? "" : ", ";
    text += std::to_string(ranks[first]);
    if (i > first) text += fmt::format("{}{}", i == first + 1 ? ", " : "-", ranks[i]);
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", text);
}

// The oldest call under way: later ones queue behind it.
const board::Call* open_call(const board::BoardView& board) {
  const auto found = std::ranges::find(board.calls, false, &board::Call::done);
  return found == board.calls.end() ? nullptr : &*found;
}

const board::Call* find_call(const board::BoardView& board, uint64_t sequence) {
  const auto found = std::ranges::find(board.calls, sequence, &board::Call::sequence);
  return found == board.calls.end() ? nullptr : &*found;
}

std::string last_call(const board::BoardView& board) {
  if (board.issued == 0) return "it has issued no call";
  if (board.calls.empty()) return fmt::format("its last call was #{}", board.issued);
  const auto& call = board.calls.back();
  return fmt::format("its last call{} was {}", call.done ? "" : ", which has not ended,",
                     describe(call));
}

// Who is inside a call, and for how long.
struct Waiting {
  std::vector<int> ranks;
  const board::Call* call = nullptr;
  int64_t longest_ms = 0;
  int64_t shortest_ms = 0;
};

void add(Waiting& waiting, const RankView& rank, const board::Call& call) {
  waiting.longest_ms = std::max(waiting.longest_ms, call.age_ms);
  waiting.shortest_ms =
      waiting.ranks.empty() ? call.age_ms : std::min(waiting.shortest_ms, call.age_ms);
  waiting.ranks.push_back(rank.board.rank);
  waiting.call = &call;
}

// By sequence number, among the ranks for which `counts` holds.
std::map<uint64_t, Waiting> waiting_ranks(Ranks ranks, auto&& counts) {
  std::map<uint64_t, Waiting> all;
  for (const auto& rank : ranks) {
    const auto* call = open_call(rank.board);
    if (call == nullptr || !counts(rank)) continue;
    add(all[call->sequence], rank, *call);
  }
  return all;
}

std::string describe_waiting(const std::map<uint64_t, Waiting>& all) {
  std::string text;
  for (const auto& [sequence, waiting] : all) {
    text += fmt::format("{}{} waited for {} in {}", text.empty() ? "" : "\n", list(waiting.ranks),
                        seconds(waiting.longest_ms), describe(*waiting.call));
  }
  return text;
}

// The others' lines after the culprit's, if there are any.
std::string others(Ranks ranks, int except) {
  const auto text = describe_waiting(waiting_ranks(
      ranks, [&](const RankView& rank) { return !rank.ended && rank.board.rank != except; }));
  return text.empty() ? "" : "\n" + text;
}

// ---- stopped

bool is_stopped(const RankView& rank, int64_t limit) {
  return !rank.ended && (rank.process_state == 'T' || rank.process_state == 't') &&
         rank.board.beat_ms >= limit;
}

bool is_silent(const RankView& rank, int64_t limit) {
  return !rank.ended && rank.board.pid > 0 && rank.board.beat_ms >= std::max(kSilenceMs, limit);
}

Verdict without_heartbeats(const RankView& rank, Ranks ranks) {
  const auto& board = rank.board;
  const char state = rank.process_state;
  const bool stopped = state == 'T' || state == 't';
  const auto what =
      stopped ? fmt::format("has been stopped ({}) for {}",
                            state == 'T' ? "SIGSTOP" : "by a debugger", seconds(board.beat_ms))
              : fmt::format("has given no sign of life for {} (state {}, {})",
                            seconds(board.beat_ms), state, meaning_of_state(state));
  return {Trouble::kStopped, board.rank,
          fmt::format("{} {} {}; {}{}", who(rank), what, where(board), last_call(board),
                      others(ranks, board.rank))};
}

std::optional<Verdict> find_stopped(Ranks ranks, const Limits& limits) {
  const int64_t limit = limits.heartbeat.count();
  if (limit == 0) return std::nullopt;
  for (const auto& rank : ranks) {
    if (is_stopped(rank, limit) || is_silent(rank, limit)) return without_heartbeats(rank, ranks);
  }
  return std::nullopt;
}

// Of those whose last heartbeat is old, the one whose is oldest.
std::optional<Verdict> find_stale(Ranks ranks, const Limits& limits) {
  const RankView* stalest = nullptr;
  for (const auto& rank : ranks) {
    const int64_t age = rank.board.beat_ms;
    if (rank.ended || rank.board.pid == 0) continue;
    if (age < std::max(kStaleMs, limits.heartbeat.count())) continue;
    if (stalest == nullptr || age > stalest->board.beat_ms) stalest = &rank;
  }
  if (stalest == nullptr) return std::nullopt;
  return without_heartbeats(*stalest, ranks);
}

// ---- mismatch

struct Side {
  const RankView* rank = nullptr;
  const board::Call* call = nullptr;
};

// For one call number: a call as most ranks issued it, followed by those that differ from it.
std::vector<Side> odd_ones(const std::vector<Side>& sides) {
  const auto votes = [&](const Side& side) {
    return std::ranges::count_if(
        sides, [&](const Side& other) { return board::same_call(*other.call, *side.call); });
  };
  const auto& usual = *std::ranges::max_element(sides, {}, votes);
  std::vector<Side> odd{usual};
  for (const auto& side : sides) {
    if (!board::same_call(*side.call, *usual.call)) odd.push_back(side);
  }
  return odd;
}

std::string side_text(const Side& side) {
  const auto& call = *side.call;
  const auto state = call.done ? "" : fmt::format(", under way for {}", seconds(call.age_ms));
  return fmt::format("\n  {} {}: {}{}", who(*side.rank), where(side.rank->board), describe(call),
                     state);
}

// `patience_ms`: how long one of two differing calls must have been under way.
std::optional<Verdict> find_mismatch(Ranks ranks, int64_t patience_ms) {
  std::map<uint64_t, std::vector<Side>> by_sequence;
  for (const auto& rank : ranks) {
    for (const auto& call : rank.board.calls) by_sequence[call.sequence].push_back({&rank, &call});
  }
  for (const auto& [sequence, sides] : by_sequence) {
    const auto odd = odd_ones(sides);
    const auto open_ms = [](const Side& s) { return s.call->done ? -1 : s.call->age_ms; };
    const bool all_done = std::ranges::all_of(odd, [](const Side& s) { return s.call->done; });
    const int64_t longest = open_ms(*std::ranges::max_element(odd, {}, open_ms));
    if (odd.size() < 2 || (!all_done && longest < patience_ms)) continue;
    return Verdict{Trouble::kMismatch, odd[1].rank->board.rank,
                   fmt::format("the ranks' calls #{} do not match:{}{}", sequence,
                               side_text(odd[0]), side_text(odd[1]))};
  }
  return std::nullopt;
}

// ---- missing

bool waits_in_vain(const RankView& rank, int64_t limit) {
  if (rank.ended) return false;
  if (rank.board.phase == board::Phase::kJoining) return rank.board.phase_ms >= limit;
  const auto* call = open_call(rank.board);
  return call != nullptr && call->age_ms >= limit;
}

bool is_missing(const RankView& rank) {
  return rank.board.issued == 0 && rank.board.phase != board::Phase::kJoining;
}

// Of the ranks that are awaited; one at work may be what the idle ones wait for.
bool is_any_at_work(const std::vector<const RankView*>& awaited, int64_t limit) {
  return std::ranges::any_of(awaited,
                             [&](const RankView* rank) { return rank->board.progress_ms < limit; });
}

std::vector<int> numbers_of(Ranks ranks, auto&& condition) {
  std::vector<int> numbers;
  for (const auto& rank : ranks) {
    if (condition(rank)) numbers.push_back(rank.board.rank);
  }
  return numbers;
}

std::string missing_text(const RankView& rank) {
  const auto& board = rank.board;
  return fmt::format("\n  {} {}", who(rank),
                     rank.ended ? std::string("has ended")
                                : fmt::format("{}, no sign of work for {}", where(board),
                                              seconds(board.progress_ms)));
}

std::optional<Verdict> find_missing(Ranks ranks, const Limits& limits) {
  const int64_t limit = limits.join.count();
  const auto is_joining = [&](const RankView& rank) { return waits_in_vain(rank, limit); };
  const auto joining = numbers_of(ranks, is_joining);
  if (joining.empty()) return std::nullopt;
  std::vector<const RankView*> missing;
  for (const auto& rank : ranks) {
    if (is_missing(rank)) missing.push_back(&rank);
  }
  if (is_any_at_work(missing, limit)) return std::nullopt;
  if (!missing.empty()) {
    std::string text = fmt::format("{} of {} did not join within {}; {} waited",
                                   list(numbers_of(ranks, is_missing)), ranks.size(),
                                   seconds(limit), list(joining));
    for (const auto* rank : missing) text += missing_text(*rank);
    return Verdict{Trouble::kMissing, missing.front()->board.rank, text};
  }
  const bool all_inside = std::ranges::all_of(ranks, [](const RankView& rank) {
    return rank.ended || rank.board.phase >= board::Phase::kJoining;
  });
  const auto stuck = numbers_of(ranks, [&](const RankView& rank) {
    return rank.board.phase == board::Phase::kJoining && is_joining(rank);
  });
  if (!all_inside || stuck.empty()) return std::nullopt;
  return Verdict{Trouble::kMissing, stuck.front(),
                 fmt::format("{} of {} could not reach the others within {}, although all have "
                             "started: check the network between the machines",
                             list(stuck), ranks.size(), seconds(limit))};
}

// ---- late

int64_t adaptive_limit(Ranks ranks) {
  std::vector<int64_t> gaps;
  for (const auto& rank : ranks) {
    gaps.insert(gaps.end(), rank.board.gaps_ms.begin(), rank.board.gaps_ms.end());
  }
  if (gaps.empty()) return kLeastAdaptiveMs;
  std::ranges::sort(gaps);
  const int64_t p99 = gaps[(gaps.size() - 1) * 99 / 100];
  return std::max({kLeastAdaptiveMs, 20 * p99, 4 * gaps.back()});
}

int64_t limit_of(Ranks ranks, const Limits& limits) {
  const bool stepped =
      std::ranges::any_of(ranks, [](const RankView& rank) { return rank.board.steps_here > 0; });
  if (!stepped) return limits.first_step.count();
  const int64_t fixed = limits.collective.count();
  return limits.adaptive ? std::min(fixed, adaptive_limit(ranks)) : fixed;
}

std::string late_text(const RankView& rank) {
  const auto& board = rank.board;
  const auto progress = board.progress.empty() ? "" : fmt::format(" ({})", board.progress);
  return rank.ended
             ? fmt::format("{} has ended {}; {}", who(rank), where(board), last_call(board))
             : fmt::format("{} is late: no sign of work for {} {}{}; {}", who(rank),
                           seconds(board.progress_ms), where(board), progress, last_call(board));
}

// All ranks are inside the call, or have left it, and it does not end on some.
std::optional<Verdict> find_stuck_call(Ranks ranks, const Waiting& waiting, int64_t limit) {
  Waiting inside;
  for (const auto& rank : ranks) {
    const auto* call = find_call(rank.board, waiting.call->sequence);
    if (call != nullptr && !rank.ended) add(inside, rank, *call);
  }
  if (inside.shortest_ms < limit) return std::nullopt;
  return Verdict{Trouble::kLate, waiting.ranks.front(),
                 fmt::format("all ranks have issued {}, the last {} ago, and it does not end on {} "
                             "(the limit is {}): the network between them, or a GPU, has stalled",
                             describe(*waiting.call), seconds(inside.shortest_ms),
                             list(waiting.ranks), seconds(limit))};
}

std::optional<Verdict> find_late(Ranks ranks, const Limits& limits) {
  const int64_t limit = limit_of(ranks, limits);
  const auto all = waiting_ranks(ranks, [](const RankView& rank) { return !rank.ended; });
  const bool too_long =
      std::ranges::any_of(all, [&](const auto& entry) { return entry.second.longest_ms >= limit; });
  if (!too_long) return std::nullopt;
  // Who waits in a later call waits for those that are not there yet.
  const auto& [sequence, waiting] = *all.begin();
  std::vector<const RankView*> late;
  for (const auto& rank : ranks) {
    if (rank.board.issued < sequence) late.push_back(&rank);
  }
  if (late.empty()) return find_stuck_call(ranks, waiting, limit);
  if (is_any_at_work(late, limit)) return std::nullopt;
  std::string text;
  for (const auto* rank : late) text += late_text(*rank) + "\n";
  text += describe_waiting(all);
  text += fmt::format("\nthe limit is {}; {} sets it", seconds(limit), limits.key);
  return Verdict{Trouble::kLate, late.front()->board.rank, text};
}

}  // namespace

std::optional<Verdict> diagnose(std::span<const RankView> ranks, const Limits& limits) {
  if (auto verdict = find_stopped(ranks, limits)) return verdict;
  if (auto verdict = find_mismatch(ranks, kMismatchMs)) return verdict;
  auto verdict = find_missing(ranks, limits);
  if (!verdict) verdict = find_late(ranks, limits);
  if (!verdict) return std::nullopt;
  // Calls cannot tell a network that stalls from a process that does not run.
  if (auto stale = find_stale(ranks, limits)) return stale;
  return verdict;
}

const char* meaning_of_state(char state) {
  switch (state) {
    case 'D':
      return "blocked in the kernel: a disk, a network file system, a driver or a frozen container";
    case 'T':
      return "stopped";
    case 't':
      return "held by a debugger";
    case 'Z':
      return "dead";
    case 'S':
      return "sleeping";
    default:
      return "running: the machine may be overloaded";
  }
}

std::string last_calls(std::span<const RankView> ranks, int dead) {
  std::vector<std::string> lines;
  if (const auto mismatch = find_mismatch(ranks, 0)) lines.push_back(mismatch->text);
  for (const auto& rank : ranks) {
    if (rank.board.rank != dead || rank.board.pid == 0) continue;
    lines.push_back(
        fmt::format("rank {} ended {}; {}", dead, where(rank.board), last_call(rank.board)));
  }
  // Those that have lost their peer may have ended too: the call that failed is still open.
  const auto waiting = describe_waiting(
      waiting_ranks(ranks, [&](const RankView& rank) { return rank.board.rank != dead; }));
  if (!waiting.empty()) lines.push_back(waiting);
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace skein::launch
