// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// A model folder that comes into being whole or not at all.
//
// Files are written into a temporary sibling, which is renamed when all is there, and removed when
// it is not. It is locked: what a killed writer has left goes when the next one begins. Signals
// that ask for a stop are held meanwhile (core/stop_signals.h): who writes long calls
// end_if_stop_waits(), and the signal has its effect when the sibling is gone; SIGQUIT counts as
// SIGINT.

#include <cstdint>
#include <vector>

#include "skein/core/file.h"

namespace skein::convert {

struct OutputOptions {
  fs::path folder;
  bool overwrite = false;        // a model that is there goes, if the folder holds nothing else
  std::vector<fs::path> inputs;  // must not be replaced
};

// Throws UserError when the folder may not be written. OutputFolder asks again.
void check_output(const OutputOptions& options);

using QuitHandler = void (*)(int);

class OutputFolder {
 public:
  // Throws IoError when the disk has no room for `bytes`.
  OutputFolder(OutputOptions options, uint64_t bytes);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  const fs::path& path() const { return temporary_; }  // until commit()
  void commit();

 private:
  OutputOptions options_;  // the folder is absolute
  fs::path temporary_;
  File lock_;                           // of temporary_
  QuitHandler quit_handler_ = nullptr;  // of SIGQUIT, before
  bool committed_ = false;
};

}  // namespace skein::convert
