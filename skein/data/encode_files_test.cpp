// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/encode_files.h"

#include <gtest/gtest.h>

#include <random>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/data/text_pieces.h"
#include "skein/text/jsonl.h"
#include "skein/text/train_tokenizer.h"

namespace skein::data {
namespace {

using Ids = std::vector<uint32_t>;

// A word with the space before it is a token whose id is its length, so that a cut inside shows. A
// line feed is a token of its own.
class WordCodec final : public text::TextCodec {
 public:
  void encode(std::string_view text, std::vector<uint32_t>& out) const override {
    for (size_t at = 0; at < text.size();) {
      const size_t end =
          text[at] == '\n' ? at + 1 : std::min(text.find_first_of(" \n", at + 1), text.size());
      out.push_back(static_cast<uint32_t>(end - at));
      at = end;
    }
  }
  std::vector<uint32_t> encode_prompt(std::string_view) const override { return {}; }
  std::string bytes_of(uint32_t) const override { return {}; }
  std::string decode(std::span<const uint32_t>) const override { return {}; }
  std::optional<uint32_t> end() const override { return 0; }
  int64_t vocab_size() const override { return 1 << 16; }
  std::string name() const override { return "words"; }
  std::string identity() const override { return "words"; }
  text::Cuts cuts() const override { return text::Cuts::kBetweenWords; }
};

// Words, numbers, punctuation, Chinese, and white space of all kinds.
std::string random_text(uint32_t seed, int parts) {
  static const char* const kParts[] = {"the",    "The",    "cat",   "'s", "42", "7",
                                       ".",      ",",      "!?",    " ",  "  ", "\n",
                                       "\n\n",   "\r\n",   "\t",    " ",  " ",  "\u4e2d\u6587",
                                       "\u3002", "\u3000", "\u00e9"};
  std::mt19937 random(seed);
  std::string text;
  for (int i = 0; i < parts; ++i) text += kParts[random() % std::size(kParts)];
  return text;
}

class EncodeFiles : public TemporaryFolder {
 protected:
  Ids encode(const text::TextCodec& codec = text::ByteCodec()) {
    Ids ids;
    totals_ = encode_files(files_, codec, options_, [&](std::span<const uint32_t> tokens) {
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    });
    return ids;
  }
  std::string refused(const text::TextCodec& codec = text::ByteCodec()) {
    return refusal<IoError>([&] { encode(codec); });
  }
  void add(const std::string& name, std::string_view content) {
    files_.push_back(write(name, content));
  }

  std::vector<fs::path> files_;
  EncodeFilesOptions options_;
  EncodeTotals totals_;
};

TEST_F(EncodeFiles, TextIsOneDocumentAndEachJsonLineIsOne) {
  add("a.txt", "A\n\xff\n");
  add("empty.txt", "");
  add("a.jsonl", "{\"text\": \"AB\"}\r\n\n \t\n{\"text\": \"\"}\n{\"text\": \"C\"}");
  EXPECT_EQ(encode(), (Ids{65, 10, 255, 10, 256, 65, 66, 256, 256, 67, 256}));
  EXPECT_EQ(totals_.documents, 4u);
}

std::string some_text(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) {
    text += std::string(1 + i * 7 % 11, static_cast<char>('a' + i % 26));
    text += i % 13 == 0 ? "\n" : i % 29 == 0 ? "  " : " ";
  }
  return text;
}

TEST_F(EncodeFiles, ThreadsAndPiecesDoNotChangeTheResult) {
  const auto text = some_text(3000);
  add("a.txt", text);
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "{\"text\": \"" + std::string(i % 97, 'x') + "\"}\n";
  add("b.jsonl", lines);
  add("c.txt", text.substr(0, 100));
  for (const bool bytes : {true, false}) {
    const auto codec = bytes ? std::unique_ptr<text::TextCodec>(std::make_unique<text::ByteCodec>())
                             : std::make_unique<WordCodec>();
    options_ = {};
    const auto expected = encode(*codec);
    EXPECT_GT(expected.size(), 3000u);
    for (const int threads : {1, 2, 3, 8}) {
      for (const uint64_t piece_bytes : {1, 7, 100, 4096}) {
        options_.threads = threads;
        options_.piece_bytes = piece_bytes;
        EXPECT_EQ(encode(*codec), expected) << threads << " threads, " << piece_bytes;
        EXPECT_EQ(totals_.documents, 502u);
      }
    }
  }
}

TEST_F(EncodeFiles, TheFirstBadLineIsNamedWhateverTheThreads) {
  std::string lines;
  for (int i = 1; i <= 300; ++i) lines += i % 100 == 0 ? "{\"text\": 3}\n" : "{\"text\": \"x\"}\n";
  add("good.jsonl", "{\"text\": \"x\"}\n");
  add("a.jsonl", lines);
  for (const int threads : {1, 4}) {
    for (const uint64_t piece_bytes : {1, 50, 1 << 20}) {
      options_.threads = threads;
      options_.piece_bytes = piece_bytes;
      const auto message = refused();
      EXPECT_EQ(message.find(files_[1].string() + ":100: \"text\" must be a string"), 0u)
          << message;
      EXPECT_NE(message.find("bad_lines=skip"), std::string::npos);
    }
  }
}

TEST_F(EncodeFiles, WhatSkippingCannotHelpDoesNotSuggestIt) {
  add("rows.jsonl", "{\"messages\": []}\n{\"messages\": []}\n");
  EXPECT_PRED2(contains, refused(), "rows.jsonl:1: the object has \"messages\" and no \"text\"");
  EXPECT_FALSE(contains(refused(), "bad_lines"));
  files_.clear();
  add("one.jsonl", "{\"text\": \"x\"}\n{\"messages\": []}\n");
  EXPECT_PRED2(contains, refused(), "bad_lines=skip");
}

TEST_F(EncodeFiles, ListsAndOtherEncodingsNameTheCommandThatHelps) {
  add("list.jsonl", " [\n{\"text\": \"x\"}]");
  EXPECT_PRED2(contains, refused(), "list.jsonl: the file is a JSON list");
  EXPECT_PRED2(contains, refused(), "jq -c '.[]' ");
  files_.clear();
  add("utf16.jsonl", std::string("\xFF\xFE{\0", 4));
  for (const auto policy : {config::BadLines::kStop, config::BadLines::kSkip}) {
    options_.bad_lines = policy;
    EXPECT_PRED2(contains, refused(), "iconv -f UTF-16 -t UTF-8 ");
  }
  files_.clear();
  add("utf16.txt", std::string("\xFE\xFF\0a", 4));
  EXPECT_EQ(encode().size(), 5U) << "bytes are bytes";
  EXPECT_PRED2(contains, refusal<IoError>([&] { encode(WordCodec()); }), "iconv -f UTF-16");
}

TEST_F(EncodeFiles, BadLinesAreSkippedAndCounted) {
  options_.bad_lines = config::BadLines::kSkip;
  options_.piece_bytes = 5;
  add("a.jsonl", "{\"text\": \"A\"}\n{\"text\": \n\n{\"text\": \"\xff\"}\n{\"text\": \"B\"}\nx");
  add("b.jsonl", "[]\n{\"text\": \"C\"}\n");
  EXPECT_EQ(encode(), (Ids{65, 256, 66, 256, 67, 256}));
  EXPECT_EQ(totals_.bad_lines, 4u);
  ASSERT_EQ(totals_.first_bad_lines.size(), 4u);
  const char* places[] = {"a.jsonl:2: invalid JSON", "a.jsonl:4: invalid UTF-8",
                          "a.jsonl:6: ", "b.jsonl:1: expected an object"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NE(totals_.first_bad_lines[i].find(places[i]), std::string::npos)
        << totals_.first_bad_lines[i];
  }
}

TEST_F(EncodeFiles, TextForATokenizerMustBeUtf8) {
  add("a.txt", "ab\nc\xff d\ne\n\xc3\xa9\n\xe9");
  const auto message = refused(WordCodec());
  EXPECT_NE(message.find("a.txt:2: invalid UTF-8 at byte 2"), std::string::npos) << message;
  options_.bad_lines = config::BadLines::kSkip;
  EXPECT_EQ(encode(WordCodec()), (Ids{2, 1, 1, 1, 2, 1, 0}));
  EXPECT_EQ(totals_.bad_lines, 2u);
  EXPECT_NE(totals_.first_bad_lines[1].find("a.txt:5:"), std::string::npos);
}

TEST_F(EncodeFiles, TooLongLinesAreRefusedOrSkipped) {
  files_.push_back(folder_ / "a.jsonl");
  {
    const auto file = File::create(files_[0]);
    file.resize(text::kMaxLineBytes + 1);  // a hole: takes no space
    const std::string_view rest = "\n{\"text\": \"A\"}\n";
    file.write_at(text::kMaxLineBytes + 1, std::as_bytes(std::span(rest)));
  }
  EXPECT_NE(refused().find(":1: the line is longer than 64 MiB"), std::string::npos);
  options_.bad_lines = config::BadLines::kSkip;
  EXPECT_EQ(encode(), (Ids{65, 256}));
  EXPECT_EQ(totals_.bad_lines, 1u);
}

TEST_F(EncodeFiles, FailuresOfTheWriterEndIt) {
  add("a.txt", some_text(1000));
  options_.threads = 4;
  options_.piece_bytes = 10;
  EXPECT_THROW(encode_files(files_, text::ByteCodec(), options_,
                            [](std::span<const uint32_t>) { throw IoError("full"); }),
               IoError);
}

TEST_F(EncodeFiles, PiecesGiveATokenizersIdsOfTheWhole) {
  text::train_tokenizer({.inputs = {write("corpus.txt", random_text(1, 5000))},
                         .vocab_size = 300,
                         .out = folder_ / "tokenizer"});
  const auto tokenizer = text::open_tokenizer(folder_ / "tokenizer");
  const auto& codec = *tokenizer;
  ASSERT_EQ(codec.cuts(), text::Cuts::kBetweenWords);
  const auto text = random_text(2, 20000);
  std::vector<uint32_t> whole;
  codec.encode(text, whole);
  whole.push_back(codec.end_of_document());
  const std::vector<fs::path> files = {write("a.txt", text)};
  for (const uint64_t piece_bytes : {1, 50, 1000}) {
    std::vector<uint32_t> ids;
    encode_files(
        files, codec, {.threads = 3, .piece_bytes = piece_bytes},
        [&](std::span<const uint32_t> part) { ids.insert(ids.end(), part.begin(), part.end()); });
    EXPECT_EQ(ids, whole) << piece_bytes;
  }
  EXPECT_EQ(codec.decode(std::span(whole).first(whole.size() - 1)), text);
  EXPECT_LE(codec.vocab_size(), 300);
}

}  // namespace
}  // namespace skein::data
