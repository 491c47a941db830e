// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// Which model does a Hugging Face config.json describe?
//
// Keys and defaults are those of transformers 4 and 5 (a file may omit what equals the default).
// What we cannot compute exactly is refused by name; keys that do not change the computation are
// kept and written back. Free of torch: the bytes come from outside.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "skein/plan/families/architecture.h"

namespace skein::plan {

struct HfConfig {
  std::string family;                                // model_type
  std::shared_ptr<const Architecture> architecture;  // never null
  std::string dtype;   // of the stored weights as the file says it ("bfloat16"); may be empty
  std::string source;  // the file's text

  Dimensions dimensions() const { return architecture->dimensions(); }
  Shapes shapes() const { return architecture->shapes(); }
};

// `origin` names the text in messages. Throws UserError naming file and key.
HfConfig parse_hf_config(std::string_view text, const std::string& origin);
// Reads FOLDER/config.json.
HfConfig read_hf_config(const std::filesystem::path& folder);

// Weights in fewer bits can neither be trained nor merged. Throws UserError where a config.json
// says that it has them.
void check_not_quantised(std::string_view text, const std::string& origin);

// The same model with a head that gives one number for a text, as transformers'
// …ForSequenceClassification with one label. Throws UserError where the family has none.
HfConfig with_score(const HfConfig& config);
// Its config.json, of a model of any family.
std::string config_with_score(const std::string& config);

// config.json for saving: the source with its unknown keys and their order, with the dtype updated.
std::string hf_config_json(const HfConfig& config, const std::string& dtype);

}  // namespace skein::plan
