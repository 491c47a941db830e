// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/text_codec.h"

#include <fmt/format.h>

#include <mutex>

#include "skein/core/error.h"
#include "skein/text/tokenizer.h"
#include "skein/text/tokenizer_files.h"

namespace skein::text {
namespace {

// See open_tokenizer().
class TokenizerCodec final : public TextCodec {
 public:
  TokenizerCodec(const fs::path& path, const std::vector<std::string>& new_tokens)
      : path_(path),
        new_tokens_(new_tokens),
        identity_("tokenizer " + digest_of_files(path, new_tokens)) {}

  void encode(std::string_view text, std::vector<uint32_t>& ids) const override {
    const auto found = tokenizer().encode(text, {.add_special_tokens = false});
    ids.insert(ids.end(), found.begin(), found.end());
  }
  std::vector<uint32_t> encode_prompt(std::string_view text) const override {
    return tokenizer().encode(text);
  }
  std::string bytes_of(uint32_t id) const override {
    return tokenizer().is_special(id) ? "" : std::string(tokenizer().bytes_of(id));
  }
  std::string decode(std::span<const uint32_t> ids) const override {
    std::string text;
    for (const uint32_t id : ids) {
      const auto bytes = tokenizer().bytes_of(id);
      text += bytes.empty() ? fmt::format("<|{}|>", id) : std::string(bytes);
    }
    return text;
  }
  std::optional<uint32_t> end() const override { return tokenizer().eos_id(); }
  int64_t vocab_size() const override { return tokenizer().vocab_size(); }
  std::string name() const override { return path_.string(); }
  std::string identity() const override { return identity_; }
  Cuts cuts() const override { return tokenizer().cuts(); }

 private:
  const Tokenizer& tokenizer() const {
    std::call_once(once_, [&] { tokenizer_ = shared_tokenizer(path_, new_tokens_); });
    return *tokenizer_;
  }

  fs::path path_;
  std::vector<std::string> new_tokens_;
  std::string identity_;
  mutable std::once_flag once_;
  mutable std::shared_ptr<const Tokenizer> tokenizer_;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

uint32_t TextCodec::end_of_document() const {
  if (const auto id = end()) return *id;
  throw UserError(fmt::format(
      "{}: the tokenizer names no eos_token, which ends each document; give it one in its "
      "tokenizer_config.json",
      name()));
}

void ByteCodec::encode(std::string_view text, std::vector<uint32_t>& ids) const {
  const auto* first = reinterpret_cast<const unsigned char*>(text.data());
  ids.insert(ids.end(), first, first + text.size());
}

std::vector<uint32_t> ByteCodec::encode_prompt(std::string_view text) const {
  std::vector<uint32_t> ids;
  encode(text, ids);
  return ids;
}

std::string ByteCodec::bytes_of(uint32_t id) const {
  return id < kEnd ? std::string(1, static_cast<char>(id)) : "";
}

std::string ByteCodec::decode(std::span<const uint32_t> ids) const {
  std::string text;
  for (const uint32_t id : ids) {
    if (id < kEnd) {
      text += static_cast<char>(id);
    } else {
      text += id == kEnd ? "<|end|>" : fmt::format("<|{}|>", id);
    }
  }
  return text;
}

std::unique_ptr<TextCodec> open_tokenizer(const fs::path& path,
                                          const std::vector<std::string>& new_tokens) {
  return std::make_unique<TokenizerCodec>(path, new_tokens);
}

std::unique_ptr<TextCodec> open_codec(const fs::path& model_folder,
                                      const std::vector<std::string>& new_tokens) {
  if (is_there(model_folder / "tokenizer.json")) return open_tokenizer(model_folder, new_tokens);
  for (const auto* other : kTokenizerForms) {
    if (!is_there(model_folder / other)) continue;
    throw UserError(fmt::format(
        "{} has a tokenizer ({}) but no tokenizer.json, the form that skein reads; save it there "
        "with transformers' AutoTokenizer, or set tokenizer_name_or_path",
        model_folder.string(), other));
  }
  return std::make_unique<ByteCodec>();
}

std::unique_ptr<TextCodec> open_codec(const config::ModelConfig& model) {
  const auto& asked = model.tokenizer_name_or_path;
  if (asked == "bytes") return std::make_unique<ByteCodec>();
  if (!asked.empty()) return open_tokenizer(asked, model.new_special_tokens);
  if (model.model_name_or_path.empty()) return std::make_unique<ByteCodec>();
  return open_codec(fs::path(model.model_name_or_path), model.new_special_tokens);
}

std::string bytes_note(const config::ModelConfig& model) {
  const bool was_left_open =
      model.tokenizer_name_or_path.empty() && !model.model_name_or_path.empty();
  if (!was_left_open || open_codec(model)->identity() != ByteCodec().identity()) return "";
  return fmt::format("{} has no tokenizer.json: tokens are bytes", model.model_name_or_path);
}

}  // namespace skein::text
