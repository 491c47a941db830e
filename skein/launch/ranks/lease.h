// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Keeps two runs from writing into one output folder.
//
// OUTPUT_DIR/.skein-lease is locked (an open file description lock, which the ranks inherit: it
// lasts as long as any process of the run) and names its holder. Where locks may not reach (another
// machine, another mount of the folder) the file's heartbeat decides: it is touched every 5 s and
// stale after 30 s, measured by the file system's own clock. A start there watches it: the next
// beat is a refusal, and once it is stale the folder is taken over. At once it is taken over only
// from a process that is known to be gone: of this kernel and this pid namespace. Where there are
// no locks at all, of several that start at once the last to write its name has the folder; the
// others see that after a tenth of a beat, before they change anything, and are refused.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "skein/core/file.h"

namespace skein::launch {

struct LeaseTimes {
  std::chrono::milliseconds beat{5'000};
  std::chrono::milliseconds stale{30'000};
  std::chrono::milliseconds ranks_end{
      10'000};  // how long ranks of a killed launcher are waited for
  // After a stale beat, how long a file server may keep the locks of a machine that is gone.
  std::chrono::milliseconds locks_end{120'000};
};

// Is a folder still that of the run which took its lease? For whoever is about to commit.
class Fence {
 public:
  // Opens the folder; `token` is that of its lease.
  Fence(fs::path output, std::string token);

  // Why this run must write there no more: another one has taken it over, or it is another folder
  // under the same name. Throws IoError when that cannot be seen now.
  std::optional<std::string> lost() const;
  // Throws CommError that says so. On any thread.
  void check() const;

 private:
  fs::path output_;
  std::string token_;
  File folder_;                                 // held, so that no other gets its number
  mutable std::atomic<bool> is_blind_ = false;  // when it was looked at last
};

class Lease {
 public:
  // Makes the folder if need be, and waits for another machine's sign. Throws UserError that names
  // host, pid and start of the run that holds it, and what to do; IoError when the folder cannot be
  // written. `on_lost` is called once, on a thread of the lease.
  explicit Lease(const fs::path& output, const LeaseTimes& times = {},
                 std::function<void(const std::string& why)> on_lost = {});
  // Gives it back, unless a child still holds the lock: then with that child's end. A disk that
  // does not answer is waited for for some seconds; then the file stays, and goes stale.
  ~Lease();
  Lease(const Lease&) = delete;

  // To be inherited by the ranks.
  int descriptor() const;
  const std::string& token() const;  // for a Fence of this run
  // Why this run must end: another machine took the folder over while this one was frozen, or the
  // folder is gone for good. Known with the next beat, or after look(), if the disk answers that
  // within a second.
  std::optional<std::string> lost() const;
  void look() const;

 private:
  class Beat;                   // a thread that touches the file
  std::shared_ptr<Beat> beat_;  // also of a thread that waits for a disk
};

// Throws the same UserError where a Lease would be refused now; takes and writes nothing.
void check_lease(const fs::path& output, const LeaseTimes& times = {});

}  // namespace skein::launch
