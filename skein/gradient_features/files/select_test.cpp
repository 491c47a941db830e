// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/select.h"

#include <gtest/gtest.h>

#include <cmath>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/histogram.h"
#include "skein/gradient_features/files/line_index.h"
#include "skein/gradient_features/files/score_file.h"

namespace skein::gradient_features {
namespace {

class SelectTest : public TemporaryFolder {
 protected:
  // Of the rows of these files.
  fs::path scores(const std::string& name, std::vector<float> values,
                  const std::vector<fs::path>& files, int64_t max_samples = 0) {
    std::vector<DataFile> known;
    for (const auto& file : files) known.push_back({LineIndex(file).count(), file_digest(file)});
    return write_scores(folder_, name,
                        {.values = std::move(values),
                         .max_samples = max_samples,
                         .data_files = std::move(known)})[0];
  }
};

TEST_F(SelectTest, BestLinesByteForByte) {
  // Blank lines do not count, odd spaces and a missing line feed stay.
  const auto a = write("a.jsonl", "{\"x\":0}\r\n\n{\"x\" : 1}\t\n{\"x\":2}");
  const auto b = write("b, c.jsonl", "{\"y\":0}\n{\"y\":\"\\u00fc ü\"}\n");
  const auto out = folder_ / "out";
  const auto summary =
      select({.scores = {scores("a", {0.1F, 0.9F, 0.3F}, {a}), scores("b", {0.3F, 0.95F}, {b})},
              .train_files = {a, b},
              .top = parse_top("60%"),
              .out = out});
  EXPECT_EQ(summary.num_samples, 5);
  EXPECT_EQ(summary.num_selected, 3);
  EXPECT_FLOAT_EQ(summary.lowest, 0.3F);
  EXPECT_EQ(read_file(out / "top_p0.6.jsonl"), "{\"y\":\"\\u00fc ü\"}\n{\"x\" : 1}\t\n{\"x\":2}\n");
  EXPECT_EQ(read_file(out / "sorted.csv"),
            fmt::format("file name, index, score\n\"{1}\", 1, 0.950000\n{0}, 1, 0.900000\n{0}, 2, "
                        "0.300000\n\"{1}\", 0, 0.300000\n{0}, 0, 0.100000\n",
                        a.string(), b.string()));
  EXPECT_PRED2(contains, read_file(out / "scores.svg"), "3 of 5 samples selected");
}

TEST_F(SelectTest, TheTableIsAlwaysWrittenAnew) {
  const auto a = write("a.jsonl", "{}\n{}\n");
  const auto run = [&](std::vector<float> values) {
    select({.scores = {scores("a", std::move(values), {a})},
            .train_files = {a},
            .top = parse_top("1"),
            .out = folder_});
    return read_file(folder_ / "sorted.csv");
  };
  const auto first = run({1, 2});
  EXPECT_NE(run({2, 1}), first);
  EXPECT_EQ(run({1, 2}), first);
}

TEST_F(SelectTest, SkippedSamplesAreNeverSelected) {
  const auto a = write("a.jsonl", "1\n2\n3\n");
  const auto summary = select({.scores = {scores("a", {-INFINITY, 0.5F, -0.5F}, {a})},
                               .train_files = {a},
                               .top = parse_top("3"),
                               .out = folder_});
  EXPECT_EQ(summary.num_asked, 3);
  EXPECT_EQ(summary.num_selected, 2);
  EXPECT_EQ(read_file(folder_ / "top_num3.jsonl"), "2\n3\n");
  EXPECT_PRED2(contains, refusal<UserError>([&] {
                 select({.scores = {scores("n", {-INFINITY, -INFINITY, -INFINITY}, {a})},
                         .train_files = {a},
                         .top = parse_top("3"),
                         .out = folder_});
               }),
               "no sample has a score");
}

TEST_F(SelectTest, CountsMustBelongTogether) {
  const auto a = write("a.jsonl", "1\n2\n3\n");
  const auto refused = [&](const fs::path& file) {
    return refusal<UserError>([&] {
      select({.scores = {file}, .train_files = {a}, .top = parse_top("1"), .out = folder_});
    });
  };
  EXPECT_PRED2(contains, refused(scores("two", {1, 2}, {a})), "scores of 2 samples, and");
  EXPECT_PRED2(contains, refused(scores("four", {1, 2, 3, 4}, {a}, 4)), "has 3 rows");
  EXPECT_EQ(refused(scores("first", {1, 2}, {a}, 2)), "");  // collected with --max_samples 2
  EXPECT_PRED2(contains, refusal<UserError>([&] {
                 select({.scores = {}, .train_files = {a}, .top = parse_top("1"), .out = folder_});
               }),
               "0 files of scores and 1 train files");
}

TEST_F(SelectTest, OneListOfScoresMayBeOfSeveralFiles) {
  const auto a = write("a.jsonl", "a0\n\na1\n"), b = write("b.jsonl", "b0\nb1\n");
  const auto chosen = [&](std::vector<float> values, int64_t max_samples) {
    select({.scores = {scores("all", std::move(values), {a, b}, max_samples)},
            .train_files = {a, b},
            .top = parse_top("2"),
            .out = folder_ / "out"});
    return read_file(folder_ / "out/top_num2.jsonl");
  };
  EXPECT_EQ(chosen({1, 4, 2, 3}, 0), "a1\nb1\n");
  EXPECT_EQ(read_file(folder_ / "out/sorted.csv"),
            fmt::format("file name, index, score\n{0}, 1, 4.000000\n{1}, 1, 3.000000\n{1}, 0, "
                        "2.000000\n{0}, 0, 1.000000\n",
                        a.string(), b.string()));
  EXPECT_EQ(chosen({1, 4, 2}, 3), "a1\nb0\n");  // collected with --max_samples 3
  EXPECT_PRED2(contains, refusal<UserError>([&] { chosen({1, 2, 3}, 0); }),
               "scores of 3 samples, and the 2 train files has 4 rows");
  EXPECT_PRED2(contains, refusal<UserError>([&] {
                 const auto two = scores("two", {1, 2}, {a});
                 select({.scores = {two, two},
                         .train_files = {a, b, a},
                         .top = parse_top("1"),
                         .out = folder_});
               }),
               "2 files of scores and 3 train files");
}

// Numbers of lines that were never scored say nothing.
TEST_F(SelectTest, OtherFilesOrAnotherOrderAreRefused) {
  const auto a = write("a.jsonl", "a0\na1\n"), b = write("b.jsonl", "b0\nb1\n");
  const auto file = scores("all", {1, 4, 2, 3}, {a, b});
  const auto refused = [&](const std::vector<fs::path>& files) {
    return refusal<UserError>([&] {
      select({.scores = {file}, .train_files = files, .top = parse_top("1"), .out = folder_});
    });
  };
  EXPECT_EQ(refused({a, b}), "");
  auto message = refused({b, a});
  EXPECT_PRED2(contains, message, "another order: " + b.string() + " is number 2");
  EXPECT_PRED2(contains, refused({a}), "2 files, and 1 is given");
  const auto copy = write("copy.jsonl", "a0\na1\n");
  EXPECT_EQ(refused({copy, b}), "");  // wherever it lies
  write("b.jsonl", "b1\nb0\n");
  message = refused({a, b});
  EXPECT_PRED2(contains, message, b.string() + " is not the file");
  EXPECT_PRED2(contains, message, "other bytes");
  write("b.jsonl", "b0\n");
  EXPECT_PRED2(contains, refused({a, b}), "that had 2 rows, this has 1 row;");
  EXPECT_PRED2(contains, refused({folder_, b}), "is a folder");
}

TEST_F(SelectTest, NothingThatIsReadIsWrittenOver) {
  const auto a = write("top_num1.jsonl", "a0\na1\n");
  const auto file = scores("a", {1, 2}, {a});
  const auto refused = [&](const fs::path& out) {
    return refusal<UserError>(
        [&] { select({.scores = {file}, .train_files = {a}, .top = parse_top("1"), .out = out}); });
  };
  EXPECT_PRED2(contains, refused(folder_), "give another --out");
  fs::create_directory_symlink(folder_, folder_ / "link");
  EXPECT_PRED2(contains, refused(folder_ / "link"), "give another --out");
  EXPECT_EQ(read_file(a), "a0\na1\n");
  EXPECT_FALSE(fs::exists(folder_ / "sorted.csv"));
  EXPECT_EQ(refused(folder_ / "out"), "");
}

TEST_F(SelectTest, AListIsNoFileOfLines) {
  const auto list = write("list.json", "\xEF\xBB\xBF \n [{\"x\": 0},\n {\"x\": 1}]\n");
  EXPECT_PRED2(contains, refusal<UserError>([&] {
                 select({.scores = {scores("a", {1}, {list}, 1)},
                         .train_files = {list},
                         .top = parse_top("1"),
                         .out = folder_});
               }),
               "jq -c .[] ");
}

TEST(Top, Words) {
  EXPECT_EQ(parse_top("5%").share, 0.05);
  EXPECT_EQ(parse_top("12.5%").share, 0.125);
  EXPECT_EQ(parse_top("100").count, 100);
  EXPECT_EQ(top_file_name(parse_top("5%")), "top_p0.05.jsonl");
  EXPECT_EQ(top_file_name(parse_top("100")), "top_num100.jsonl");
  for (const auto* text :
       {"", "%", "0", "0%", "-1", "101%", "0.5", "ten", "5 %", "nan", "inf", "1e99"}) {
    EXPECT_PRED2(contains, refusal<UserError>([&] { parse_top(text); }), "expected a share (5%)");
  }
}

TEST(Top, SharesAreRoundedDown) { EXPECT_EQ(top_file_name({.share = 0.29}), "top_p0.29.jsonl"); }

TEST(Histogram, AnyScores) {
  for (const auto& scores : {std::vector<float>{}, {1, 1, 1}, {-INFINITY}, {0, NAN, INFINITY, 3}}) {
    const auto svg = histogram_svg(scores, 1, "a < b & c");
    EXPECT_PRED2(contains, svg, "a &lt; b &amp; c");
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_FALSE(contains(svg, "nan") || contains(svg, "inf"));
  }
}

class LineIndexTest : public TemporaryFolder {};

TEST_F(LineIndexTest, LongAndBlankLines) {
  const std::string longer(9 << 20, 'x');  // over several pieces
  const auto path = write("f.jsonl", "a\n \t\r\n" + longer + "\n\nlast");
  const LineIndex lines(path);
  ASSERT_EQ(lines.count(), 3);
  EXPECT_EQ(lines.read(0), "a");
  EXPECT_EQ(lines.read(1), longer);
  EXPECT_EQ(lines.read(2), "last");
  EXPECT_EQ(lines.number(1), 3);
  EXPECT_EQ(lines.number(2), 5);
  EXPECT_EQ(LineIndex(write("empty", "")).count(), 0);
  EXPECT_EQ(LineIndex(write("blank", "\n \n")).count(), 0);
  // As the rows of a training file are counted.
  for (const auto* text : {"\xEF\xBB\xBF\n{}\n\f\v\n{}", "\xEF\xBB\xBF{}\n\f\n\t\n{}\n"}) {
    const LineIndex marked(write("marked.jsonl", text));
    EXPECT_EQ(marked.count(), 3);
    EXPECT_EQ(marked.read(0), "{}");
    EXPECT_EQ(marked.read(2), "{}");
  }
}

}  // namespace
}  // namespace skein::gradient_features
