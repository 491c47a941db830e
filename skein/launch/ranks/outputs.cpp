// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/outputs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/core/terminal_stream.h"

namespace skein::launch {
namespace {

constexpr int kOut = 1, kError = 2;  // bits of OutputPlan
constexpr size_t kLongestLine = size_t{1} << 16;

std::array<TerminalStream*, 2> terminals() { return {&terminal_out(), &terminal_error()}; }

int bits_of(const std::vector<int>& by_rank, int local_rank) {
  const auto index = static_cast<size_t>(local_rank);
  return index < by_rank.size() ? by_rank[index] : 0;
}

bool is_shown(const OutputPlan& plan, int local_rank) {
  return plan.shown.empty() || std::ranges::count(plan.shown, local_rank) > 0;
}

File open_nothing() {
  File file(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!file) throw_errno("cannot open /dev/null");
  return file;
}

// The reader's end does not wait; the child's does.
std::pair<File, File> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot make a pipe");
  File reader(ends[0]), writer(ends[1]);
  fcntl(reader.descriptor(), F_SETFL, O_NONBLOCK);
  return {std::move(reader), std::move(writer)};
}

}  // namespace

bool hides_errors(const OutputPlan& plan, int local_ranks) {
  for (int local = 0; local < local_ranks; ++local) {
    const bool to_file =
        (bits_of(plan.redirects, local) & ~bits_of(plan.tees, local) & kError) != 0;
    if (to_file || !is_shown(plan, local)) return true;
  }
  return false;
}

struct Outputs::Stream {
  int rank = 0;
  fs::path path;  // empty: no file
  File child_end;
  // Of a teed stream alone:
  File pipe, file;
  std::string line;  // begun, not ended
  TerminalStream* terminal = nullptr;

  // Reads what is there. False when the pipe has ended.
  bool read_ready();
  void take(std::string_view bytes);
  void end();

 private:
  void put(std::string_view text);
  void write_file(std::string_view text);
};

struct Outputs::Rank {
  fs::path folder;  // empty: no files
  Stream out, error;
};

bool Outputs::Stream::read_ready() {
  char buffer[65536];
  for (int i = 0; i < 16; ++i) {  // a rank that never stops printing must not keep the launcher
    const auto count = read(pipe.descriptor(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    take({buffer, static_cast<size_t>(count)});
  }
  return true;
}

void Outputs::Stream::take(std::string_view bytes) {
  write_file(bytes);
  line += bytes;
  size_t begin = 0;
  for (size_t end; (end = line.find('\n', begin)) != std::string::npos; begin = end + 1) {
    put(std::string_view(line).substr(begin, end + 1 - begin));
  }
  line.erase(0, begin);
  if (line.size() > kLongestLine) end();
}

void Outputs::Stream::end() {
  if (line.empty()) return;
  put(line + "\n");
  line.clear();
}

void Outputs::Stream::put(std::string_view text) {
  const auto prefix = fmt::format("[rank {}] ", rank);
  terminal->write(text.starts_with(prefix) ? std::string(text) : prefix + std::string(text));
}

void Outputs::Stream::write_file(std::string_view text) {
  while (file && !text.empty()) {
    const auto count = write(file.descriptor(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      log_warning("cannot write {}: {}; the run goes on without it", path.string(),
                  std::strerror(errno));
      file = File();
      return;
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
}

Outputs::Outputs(const OutputPlan& plan, int first_rank, int local_ranks, int attempt) {
  for (int local = 0; local < local_ranks; ++local) {
    Rank rank{.folder = {}, .out = {}, .error = {}};
    const int number = first_rank + local;
    if (plan.log_dir) {
      rank.folder = *plan.log_dir / fmt::format("attempt_{}", attempt) / std::to_string(number);
      make_directories(rank.folder);
      std::error_code ignored;
      fs::remove(rank.folder / "error.json", ignored);  // of an earlier start
    }
    const bool shown = is_shown(plan, local);
    const int tees = bits_of(plan.tees, local), redirects = bits_of(plan.redirects, local);
    const auto open_stream = [&](Stream& stream, int bit, TerminalStream& terminal) {
      stream.rank = number;
      const bool teed = (tees & bit) != 0 && shown;
      if (((tees | redirects) & bit) != 0) {
        SKEIN_CHECK(plan.log_dir, "streams to files without a folder");
        stream.path = rank.folder / (bit == kOut ? "stdout.log" : "stderr.log");
        (teed ? stream.file : stream.child_end) = File::open_to_append(stream.path);
      } else if (!shown) {
        stream.child_end = open_nothing();
      }
      if (!teed) return;
      stream.terminal = &terminal;
      std::tie(stream.pipe, stream.child_end) = make_pipe();
    };
    open_stream(rank.out, kOut, terminal_out());
    open_stream(rank.error, kError, terminal_error());
    ranks_.push_back(std::move(rank));
  }
}

Outputs::~Outputs() {
  copy_ready();
  for (auto& rank : ranks_) {
    for (auto* stream : {&rank.out, &rank.error}) stream->end();
  }
  for (auto* terminal : terminals()) terminal->flush(std::chrono::seconds(1));
}

ChildStreams Outputs::streams_of(int local_rank) const {
  const auto& rank = ranks_.at(static_cast<size_t>(local_rank));
  return {.out = rank.out.child_end.descriptor(),
          .error = rank.error.child_end.descriptor(),
          .error_file = rank.folder.empty() ? "" : (rank.folder / "error.json").string()};
}

void Outputs::close_child_ends() {
  for (auto& rank : ranks_) {
    for (auto* stream : {&rank.out, &rank.error}) stream->child_end = File();
  }
}

void Outputs::add_to(std::vector<pollfd>& entries) const {
  for (const auto& rank : ranks_) {
    for (const auto* stream : {&rank.out, &rank.error}) {
      if (stream->pipe) entries.push_back({stream->pipe.descriptor(), POLLIN, 0});
    }
  }
  for (auto* terminal : terminals()) {
    if (const auto entry = terminal->entry()) entries.push_back(*entry);
  }
}

void Outputs::copy_ready() {
  for (auto& rank : ranks_) {
    for (auto* stream : {&rank.out, &rank.error}) {
      if (stream->pipe && !stream->read_ready()) stream->pipe = File();
    }
  }
  for (auto* terminal : terminals()) terminal->flush();
}

std::string Outputs::where(int local_rank) const {
  const auto& rank = ranks_.at(static_cast<size_t>(local_rank));
  return (rank.error.path.empty() ? rank.out.path : rank.error.path).string();
}

}  // namespace skein::launch
