// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What does a tokenizer.json say, and do we know all of it?
//
// A file from outside: whatever skein does not know exactly is refused by name, since a guess would
// give other ids than the model was trained with. docs/tokenizer.md lists what is known.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skein/text/added_tokens.h"
#include "skein/text/bpe.h"
#include "skein/text/cuts.h"
#include "skein/text/parts/decoder.h"
#include "skein/text/parts/normalizer.h"
#include "skein/text/parts/post_processor.h"
#include "skein/text/parts/pre_tokenizer.h"

namespace skein::text {

struct TokenizerParts {
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  PostProcessors post_processors;
  Decoders decoders;
  StringMap<uint32_t> vocabulary;  // as spelled in the file, without the added tokens
  std::vector<Merge> merges;
  BpeOptions bpe;
  std::optional<std::string> lost_unknown;  // an unk_token that is not in the vocabulary
  std::vector<AddedToken> added_tokens;
  // Whether what the parts do depends on where in the original a piece lies.
  bool needs_origins = false;
  Cuts cuts = Cuts::kNowhere;
};

// `name` begins every message. Throws UserError.
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& name);

// The special tokens that tokenizer_config.json or special_tokens_map.json name. Their
// add_bos_token and add_eos_token are not read: tokenizer.json decides, as in transformers.
struct TokenizerNames {
  std::optional<std::string> bos, eos, pad;
};
TokenizerNames parse_tokenizer_config(std::string_view text, const std::string& name);

// What training found; ids are places in `vocabulary`, special tokens first.
struct TrainedBpe {
  std::vector<std::string> vocabulary;  // spelled
  std::vector<Merge> merges;
  int64_t num_special = 0;
};
// A file that `tokenizers` reads: byte-level BPE with GPT-2's splitting and no prefix space.
std::string to_tokenizer_json(const TrainedBpe& trained);
// Its first special token is beginning, end and unknown at once, as GPT-2 has it.
std::string to_tokenizer_config_json(const TrainedBpe& trained);

}  // namespace skein::text
