// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a run under `auto` do without, once its first update has run out of memory?
//
// The estimate of fit.h was too low then. Nothing is compared with the memory that is there: each
// rung of the ladder needs less than the one before by that estimate, and is tried. In this order:
// half the micro-batch with the same global batch, gradient_checkpointing, the next stage, offload;
// what saves less than a tenth comes last.
// A strategy and a gradient_checkpointing that were given stay.
//
// A rung is told as the words that change the configuration, "per_device_train_batch_size=4
// gradient_accumulation_steps=2": between launchers, to ranks, and in the run's record, by which a
// later start begins there.

#include <optional>
#include <string>

#include "skein/config/load.h"
#include "skein/plan/fit.h"

namespace skein::plan {

class Ladder {
 public:
  // `asked` as it was given, `settled` as settle_autos() has left it.
  Ladder(config::Resolved asked, config::Resolved settled, const Machine& machine);

  // Was anything left to `auto`?
  bool is_open() const;
  // What an earlier start of the run in output_dir has given up, with as many ranks and as many
  // rows of each, without what is given now; else, and for a run that begins anew, empty.
  std::string recorded() const;
  // Given so much up, what to give up instead: more. Empty: nothing is left. Throws UserError and
  // IoError where the model cannot be read.
  std::string lower(const std::string& given_up) const;
  config::Resolved without(const std::string& given_up) const;

 private:
  std::string still_open(const std::string& words) const;

  config::Resolved asked_, settled_;
  Machine machine_;
};

// Which of a choice's parts may change.
struct OpenParts {
  bool recompute = true;
  bool stage = true;  // and offload
};
// The next rung below a choice; none: nothing needs less.
std::optional<Choice> one_rung_down(const RunMemory& memory, const Choice& from,
                                    const OpenParts& open = {});

// What to type where a run has met the end of its memory and nobody starts it again.
std::string advice_without_memory(const config::Resolved& settled, const Machine& machine);

}  // namespace skein::plan
