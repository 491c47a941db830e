// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/ranks/lease.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "skein/core/error.h"
#include "skein/core/foreign_text.h"
#include "skein/core/host.h"
#include "skein/core/json.h"
#include "skein/core/log.h"
#include "skein/core/stop_signals.h"
#include "skein/launch/process/slow_disk.h"

namespace skein::launch {
namespace {

using std::chrono::milliseconds;

constexpr const char* kName = ".skein-lease";
// A network file system may fail to answer once.
constexpr int kAttempts = 3;
constexpr milliseconds kPause{200};
// For a disk that does not answer, at the end of a run and in its midst.
constexpr milliseconds kLongestEnd{5000};
constexpr milliseconds kLongestLook{1000};
// A folder whose name is gone at so many beats in a row was moved or removed for good.
constexpr int kMostAbsences = 3;

// Who holds a lease.
struct Holder {
  std::string host = "unknown";
  std::string boot;  // which kernel: locks are known to reach as far as that
  int64_t pid = 0;
  std::string pid_namespace;  // that the number belongs to; empty in records of older programs
  std::string since = "unknown";
  std::string token;  // of this one start

  std::string text() const {
    return fmt::format("the run on host {}, pid {}, since {}", shown(host), pid, shown(since));
  }
};

Holder this_process() {
  Holder self;
  self.host = host_name();
  self.boot = boot_id();
  self.pid = getpid();
  self.pid_namespace = pid_namespace();
  self.since = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
  std::random_device random;
  self.token = fmt::format("{:08x}{:08x}", random(), random());
  return self;
}

std::string encode(const Holder& holder) {
  const nlohmann::ordered_json record = {
      {"host", holder.host},   {"boot", holder.boot},
      {"pid", holder.pid},     {"pid_namespace", holder.pid_namespace},
      {"since", holder.since}, {"token", holder.token}};
  return record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Nothing when the file is empty or not (yet) a record.
std::optional<Holder> read_holder(const File& file) try {
  std::string text(std::min<uint64_t>(file.size(), 4096), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  const auto record = parse_json(text, kMessageLimits);
  return Holder{.host = record.at("host"),
                .boot = record.at("boot"),
                .pid = record.at("pid"),
                .pid_namespace = record.value("pid_namespace", ""),
                .since = record.at("since"),
                .token = record.at("token")};
} catch (const std::exception&) {
  return std::nullopt;
}

// kNoLocks: the file system has none, so that the heartbeat must decide.
enum class Lock { kOurs, kTaken, kNoLocks };

Lock try_lock(const File& file) {
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(file.descriptor(), F_OFD_SETLK, &whole) == 0) return Lock::kOurs;
  return errno == EAGAIN || errno == EACCES ? Lock::kTaken : Lock::kNoLocks;
}

timespec modified(const File& file) {
  struct stat info{};
  if (fstat(file.descriptor(), &info) != 0) throw_errno("cannot stat a lease");
  return info.st_mtim;
}

// How old is the file's last beat? A new file beside it tells the file system's time.
milliseconds age_of(const File& lease, const fs::path& folder) {
  const auto probe = temporary_beside(folder / kName);
  const auto now = [&] {
    const auto file = File::create(probe);
    futimens(file.descriptor(), nullptr);
    return modified(file);
  }();
  std::error_code ignored;
  fs::remove(probe, ignored);
  const auto then = modified(lease);
  return milliseconds((now.tv_sec - then.tv_sec) * 1000 + (now.tv_nsec - then.tv_nsec) / 1'000'000);
}

[[noreturn]] void refuse_use(const fs::path& output, const std::string& holder) {
  throw UserError(
      fmt::format("{} is in use by {}: wait for it, stop it, or give another output_dir (of `skein "
                  "gradients collect` --output_path)",
                  output.string(), holder));
}

// A run that ended may have removed the file between our open and our lock.
bool is_still_there(const File& file, const fs::path& path) {
  struct stat ours{}, named{};
  return fstat(file.descriptor(), &ours) == 0 && stat(path.c_str(), &named) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

void write_record(const File& file, const Holder& self) {
  const auto record = encode(self);
  file.write_at(0, std::as_bytes(std::span(record)));
  file.resize(record.size());
  file.sync();
}

// Nothing when it is not there.
File open_to_look(const fs::path& path) {
  return File(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

// Where nothing is locked two starts may find the folder free at once. Each puts a whole record in
// the place of what it has seen, and looks again after a while: the last one's stays. False: what
// was seen is there no more.
bool replace_record(File& file, const fs::path& output, const Holder& self, milliseconds pause) {
  const auto path = output / kName, temporary = temporary_beside(path);
  auto own = File::create(temporary);
  try {
    write_record(own, self);
    // After the slow part: what is left between this look and the rename is an instant.
    if (!is_still_there(file, path)) {
      remove_tree(temporary);
      return false;
    }
    rename_path(temporary, path);
  } catch (const IoError&) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  std::this_thread::sleep_for(pause);
  const auto named = open_to_look(path);
  const auto holder = named ? read_holder(named) : std::nullopt;
  if (!holder) refuse_use(output, "another run, which started at the same time");
  if (holder->token != self.token) refuse_use(output, holder->text());
  file = std::move(own);
  return true;
}

// Killed, and perhaps not yet waited for by whoever started it.
bool has_ended(int64_t pid) {
  return (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) || process_state(pid) == 'Z';
}

// A launcher that was killed leaves ranks that are just ending.
bool is_gone(const Holder& holder, const Holder& self) {
  // In another container its number means another process, or none.
  const bool is_hidden = !holder.pid_namespace.empty() && !self.pid_namespace.empty() &&
                         holder.pid_namespace != self.pid_namespace;
  return holder.boot == self.boot && !is_hidden && has_ended(holder.pid);
}

// The same where its lock says nothing: another mount of the folder, or a file system that gives
// everybody a lock, may hide it. Only among processes that share their numbers is an absent one
// gone; our own number is ours now.
bool is_known_to_be_gone(const Holder& holder, const Holder& self) {
  if (self.pid_namespace.empty() || holder.pid_namespace != self.pid_namespace) return false;
  return is_gone(holder, self) || (holder.boot == self.boot && holder.pid == self.pid);
}

// Never through a link: whoever may write the folder could point it at another file of ours.
File open_lease(const fs::path& path) {
  File file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!file) throw_errno(fmt::format("cannot open {} to write", path.string()));
  struct stat info{};
  if (fstat(file.descriptor(), &info) == 0 && S_ISREG(info.st_mode)) return file;
  throw IoError(fmt::format("{} is no plain file: remove it", path.string()));
}

// Watches the heartbeat of a run that no lock tells about, as on another machine. It may have died
// a moment ago.
class ForeignBeat {
 public:
  ForeignBeat(const fs::path& output, const LeaseTimes& times) : output_(output), times_(times) {}

  // The folder is free: no sign for too long, and no lock. Otherwise call again after a pause.
  // Refuses when there was a sign, or a lock that does not end.
  bool is_over(const File& lease, const Holder& holder, Lock lock) {
    const auto beat = modified(lease);
    if (token_ != holder.token) {
      watch(holder, beat, age_of(lease, output_));
    } else if (beat.tv_sec != beat_.tv_sec || beat.tv_nsec != beat_.tv_nsec) {
      refuse_use(output_, holder.text());
    }
    const auto silence = age_ + (std::chrono::steady_clock::now() - since_);
    if (silence >= times_.stale && lock != Lock::kTaken) {
      log_info("{}: {} has given no sign for {} s: taken over", output_.string(), holder.text(),
               seconds(silence));
      return true;
    }
    if (silence >= times_.stale + times_.locks_end) refuse_use(output_, holder.text());
    return false;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static int64_t seconds(Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time).count();
  }

  // A beat may lie in the future, of a machine whose clock was ahead: then it counts from now on.
  void watch(const Holder& holder, const timespec& beat, milliseconds age) {
    token_ = holder.token;
    beat_ = beat;
    age_ = std::max(age, milliseconds(0));
    since_ = Clock::now();
    log_info("{}: {} gave its last sign {} s ago; if no other follows it is taken over in {} s",
             output_.string(), holder.text(), seconds(age_),
             std::max<int64_t>(0, seconds(times_.stale - age_)));
  }

  const fs::path output_;
  const LeaseTimes times_;
  std::string token_;        // of whom is watched
  timespec beat_{};          // its last sign when it was seen first,
  milliseconds age_{};       // how old that was then,
  Clock::time_point since_;  // and when this was
};

File take(const fs::path& output, const Holder& self, const LeaseTimes& times) {
  const auto path = output / kName;
  const auto patience = std::chrono::steady_clock::now() + times.ranks_end;
  ForeignBeat foreign(output, times);
  while (true) {
    auto file = open_lease(path);
    const auto lock = try_lock(file);
    const auto holder = read_holder(file);
    const bool elsewhere = holder && (lock == Lock::kNoLocks || holder->boot != self.boot ||
                                      (lock == Lock::kOurs && !is_known_to_be_gone(*holder, self)));
    if (lock == Lock::kTaken && !elsewhere) {
      if (!holder) refuse_use(output, "another run, which is just starting");
      const bool may_wait = std::chrono::steady_clock::now() < patience;
      if (!may_wait || !is_gone(*holder, self)) refuse_use(output, holder->text());
      end_if_stop_waits();
      std::this_thread::sleep_for(milliseconds(20));
      continue;
    }
    if (!is_still_there(file, path)) continue;
    if (elsewhere && !foreign.is_over(file, *holder, lock)) {
      file = File();  // only a newly opened one makes a network file system ask its server
      end_if_stop_waits();
      std::this_thread::sleep_for(times.beat / 10);
      continue;
    }
    if (lock == Lock::kNoLocks) {
      if (replace_record(file, output, self, times.beat / 10)) return file;
      continue;
    }
    try {
      write_record(file, self);
    } catch (const IoError&) {
      std::error_code ignored;
      if (!holder) fs::remove(path, ignored);  // the lock is ours
      throw;
    }
    return file;
  }
}

}  // namespace

Fence::Fence(fs::path output, std::string token)
    : output_(std::move(output)),
      token_(std::move(token)),
      folder_(open(output_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_) throw_errno(fmt::format("cannot open {} as a folder", output_.string()));
}

std::optional<std::string> Fence::lost() const {
  struct stat ours{}, named{};
  if (fstat(folder_.descriptor(), &ours) != 0 || stat(output_.c_str(), &named) != 0) {
    throw_errno("cannot see " + output_.string());
  }
  if (ours.st_dev != named.st_dev || ours.st_ino != named.st_ino) {
    return fmt::format("{} is another folder than the one this run began in", output_.string());
  }
  // Newly opened: only that makes a network file system ask its server.
  const auto path = output_ / kName;
  const auto file = open_to_look(path);
  if (!file && errno == ENOENT) {
    return fmt::format(
        "{} is gone: another run has taken the folder over and ended, or somebody "
        "removed the file",
        path.string());
  }
  if (!file) throw_errno("cannot open " + path.string());
  const auto holder = read_holder(file);
  if (!holder) throw IoError(path.string() + " cannot be read");
  if (holder->token == token_) return std::nullopt;
  return fmt::format("{} was taken over by {}", output_.string(), holder->text());
}

void Fence::check() const {
  for (int attempt = 1;; ++attempt) {
    try {
      if (const auto why = lost()) throw CommError(*why + ": this run writes there no more");
      is_blind_ = false;
      return;
    } catch (const IoError&) {
      // Who waited in vain does not wait again before every line of a log.
      if (is_blind_ || attempt == kAttempts) {
        is_blind_ = true;
        throw;
      }
      std::this_thread::sleep_for(kPause);
    }
  }
}

class Lease::Beat {
 public:
  Beat(const fs::path& output, const LeaseTimes& times,
       std::function<void(const std::string& why)> on_lost)
      : output_(output),
        times_(times),
        self_(this_process()),
        fence_(output, self_.token),
        file_(take(output, self_, times)),
        on_lost_(std::move(on_lost)) {
    try {
      start_thread();
    } catch (...) {
      give_back();
      throw;
    }
  }

  // Waits for a disk that does not answer.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
    give_back();
  }

  const fs::path& output() const { return output_; }
  int descriptor() const { return file_.descriptor(); }
  const std::string& token() const { return self_.token; }
  std::optional<std::string> lost() const {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  void look() {
    if (lost()) return;
    auto problem = look_at_file();
    const std::lock_guard lock(mutex_);
    if (problem) lost_ = std::move(problem);
  }

 private:
  // Signals are for the launcher's own loop.
  void start_thread() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct Restore {
      const sigset_t& mask;
      ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
    } const restore{before};
    thread_ = std::thread([this] { run(); });
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, times_.beat, [this] { return ending_; })) {
      lock.unlock();
      auto problem = beat();
      lock.lock();
      if (problem) lost_ = std::move(problem);
      if (!lost_ || ending_) continue;
      const auto why = *lost_;
      lock.unlock();
      if (on_lost_) on_lost_(why);
      return;
    }
  }

  std::optional<std::string> beat() {
    std::error_code unclear;
    const bool is_absent = !fs::exists(output_, unclear) && !unclear;
    absences_ = is_absent ? absences_ + 1 : 0;
    if (absences_ == kMostAbsences) {
      return fmt::format("{} is gone: it was moved or removed, and this run has no place to save",
                         output_.string());
    }
    if (is_absent) return std::nullopt;  // it may come back
    write_again();
    auto problem = look_at_file();
    if (problem) return problem;
    int reason = 0;
    run_apart([&] {
      const auto path = output_ / kName;
      if (utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) != 0) reason = errno;
    });
    if (reason != 0 && !std::exchange(untouched_, true)) {
      log_warning(
          "the lease of {} cannot be touched: {}; where locks do not reach, another machine would "
          "take this run for dead after {} s",
          output_.string(), std::strerror(reason),
          std::chrono::duration_cast<std::chrono::seconds>(times_.stale).count());
    }
    return std::nullopt;
  }

  // Where somebody has emptied the file, or scribbled over it. It is the one that this run has
  // locked, and nobody else's. What is no record is looked at twice: another machine that takes the
  // folder over writes in two moves.
  void write_again() {
    const auto path = output_ / kName;
    try {
      const auto file = open_to_look(path);
      const bool lacks = file && is_still_there(file_, path) && !read_holder(file);
      const bool lacked = std::exchange(lacks_record_, lacks);
      if (!lacks || (!lacked && file.size() > 0)) return;
      write_record(file_, self_);
      log_warning("{} held no record any more, and was written again", path.string());
    } catch (const IoError&) {
      // The look that follows says what is wrong.
    }
  }

  std::optional<std::string> look_at_file() {
    try {
      return fence_.lost();
    } catch (const IoError& error) {
      if (!warned_.exchange(true)) {
        log_warning("the lease of {}: {}", output_.string(), error.what());
      }
    }
    return std::nullopt;
  }

  // Closing our descriptor frees the lock unless a child has it too; who gets it next may remove
  // the file.
  void give_back() {
    if (lost_) return;
    file_ = File();
    try {
      run_apart([this] {
        const auto path = output_ / kName;
        const File file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
        if (!file || try_lock(file) == Lock::kTaken || !is_still_there(file, path)) return;
        const auto holder = read_holder(file);
        if (holder && holder->token == self_.token) fs::remove(path);
      });
    } catch (const std::exception& error) {
      log_warning("the lease of {} stays: {}", output_.string(), error.what());
    }
  }

  const fs::path output_;
  const LeaseTimes times_;
  const Holder self_;
  const Fence fence_;  // before the file: nothing is taken where a folder cannot be opened
  File file_;
  const std::function<void(const std::string& why)> on_lost_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::atomic<bool> warned_ = false;
  bool untouched_ = false;  // and that was told
  int absences_ = 0;        // of the folder's name, at beats in a row
  bool lacks_record_ = false;
  std::optional<std::string> lost_;
  std::thread thread_;
};

void check_lease(const fs::path& output, const LeaseTimes& times) {
  const auto file = open_to_look(output / kName);
  if (!file) return;
  const auto holder = read_holder(file);
  const auto self = this_process();
  struct flock whole{};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const bool has_locks = fcntl(file.descriptor(), F_OFD_GETLK, &whole) == 0;
  if (has_locks && whole.l_type != F_UNLCK) {
    if (!holder) refuse_use(output, "another run, which is just starting");
    if (!is_gone(*holder, self)) refuse_use(output, holder->text());
    return;  // ranks of a killed launcher, which are just ending
  }
  if (!holder || (has_locks && is_known_to_be_gone(*holder, self))) return;
  const auto age = std::chrono::seconds(std::time(nullptr) - modified(file).tv_sec);
  if (age < times.stale) refuse_use(output, holder->text());
}

Lease::Lease(const fs::path& output, const LeaseTimes& times,
             std::function<void(const std::string& why)> on_lost) {
  make_directories(output);
  beat_ = std::make_shared<Beat>(output, times, std::move(on_lost));
}

Lease::~Lease() {
  const auto ended = try_for(kLongestEnd, [beat = beat_] {
    beat->end();
    return true;
  });
  if (ended) return;
  log_warning("the lease of {} stays: its disk has not answered for {} s", beat_->output().string(),
              kLongestEnd / std::chrono::seconds(1));
}

int Lease::descriptor() const { return beat_->descriptor(); }
const std::string& Lease::token() const { return beat_->token(); }
void Lease::look() const {
  try_for(kLongestLook, [beat = beat_] {
    beat->look();
    return true;
  });
}
std::optional<std::string> Lease::lost() const { return beat_->lost(); }

}  // namespace skein::launch
