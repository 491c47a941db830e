// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a DeepSpeed configuration say to us?
//
// Every key of it is honoured, emulated, without effect, or refused, and a note says which.
// "auto" takes the value of the YAML or the default, as in HF Trainer. Where DeepSpeed's own
// default is not ours, it is set too: the file says what DeepSpeed would do with it.

#include <optional>
#include <string>
#include <vector>

#include "skein/config/syntax/choices.h"
#include "skein/config/syntax/node.h"

namespace skein::config {

struct DeepSpeed {
  std::vector<Setting> settings;   // canonical keys
  std::vector<std::string> notes;  // one per key
  std::vector<std::string>
      defaults;         // one per key that is absent, and sets one of ours all the same
  std::string summary;  // all of it in one line
  // Where `adam_w_mode: false` of type Adam stands: it adds weight_decay to the gradient, which
  // only a weight_decay of 0 makes right here.
  std::optional<Origin> coupled_decay;
};

// `named` is the `deepspeed` setting: a file name, an object, or an object with `config_path`. A
// relative file is looked for in the working folder, then beside the file that names it. Defaults
// are those of the DeepSpeed of `compat`.
DeepSpeed read_deepspeed(const Setting& named, DsCompat compat);

}  // namespace skein::config
