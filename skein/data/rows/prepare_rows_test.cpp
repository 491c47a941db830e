// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/rows/prepare_rows.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "skein/core/hash.h"
#include "skein/data/content_digest.h"
#include "skein/data/rows/test_rows.h"

namespace skein::data {
namespace {

using RowIds = std::vector<int64_t>;

// The row's ids; those that are not trained on are negative.
RowIds masked(const PreparedRows& prepared, int64_t row) {
  RowIds ids(prepared.rows.entry(row).length);
  prepared.rows.read(row, ids);
  int64_t trained = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_trained = prepared.rows.is_trained(row, static_cast<int64_t>(i));
    trained += is_trained;
    if (!is_trained) ids[i] = -ids[i];
  }
  EXPECT_EQ(prepared.rows.entry(row).num_targets, trained);
  return ids;
}

using PrepareRows = RowsTest;

TEST_F(PrepareRows, RowsAreEncodedOnceAndReused) {
  const std::string rows =
      "{\"prompt\": \"AB\", \"completion\": \"C\"}\n\n{\"text\": \"DE\"}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"F\"}, "
      "{\"role\": \"assistant\", \"content\": \"G\"}]}\n";
  const auto first = prepare(rows);
  EXPECT_FALSE(first.was_reused);
  ASSERT_EQ(first.rows.count(), 3);
  EXPECT_EQ(masked(first, 0), (RowIds{-65, -66, 67, 256}));
  EXPECT_EQ(masked(first, 1), (RowIds{-68, 69, 256})) << "nothing predicts a row's first id";
  EXPECT_EQ(masked(first, 2), (RowIds{-'u', -'s', -'e', -'r', -':', -'F', -'a', -'s', -'s', -'i',
                                      -'s', -'t', -'a', -'n', -'t', -':', 'G', 256}));
  EXPECT_EQ(first.num_tokens, 4u + 3 + 18);
  EXPECT_EQ(first.largest_token, 256u);
  EXPECT_PRED2(contains, first.place_of(1), "train.jsonl:3");
  EXPECT_EQ(first.prepared_file.filename(), first.digest + ".rows");
  const auto again = prepare(rows);
  EXPECT_TRUE(again.was_reused);
  EXPECT_EQ(masked(again, 2), masked(first, 2));
}

TEST_F(PrepareRows, TheEncoderIsPartOfTheName) {
  const auto first = prepare("{\"text\": \"DE\"}\n");
  auto other = byte_encoder();
  other.identity = "bytes, another template";
  const auto second = prepare_rows(data_, other, Split::kTrain);
  EXPECT_FALSE(second.was_reused);
  EXPECT_NE(second.digest, first.digest);
}

// Prepared files are found again by later programs: words, which no new kind moves.
TEST_F(PrepareRows, TheNameIsOfWords) {
  const auto named = [&](const char* words, const PreparedRows& rows) {
    const auto content = content_digest(data_.train_file, 0, 1, [](uint64_t) {});
    EXPECT_EQ(rows.digest,
              digest(fmt::format("skein {}\nencoder bytes\n.jsonl {}\n", words, content)));
  };
  named("rows 3", prepare(row_of(2, 2)));
  named("pairs 1", prepare(pair_of(2, "A", "B"), RowKind::kPairs));
  named("feedback 1", prepare(judged("a", "B", true), RowKind::kFeedback));
}

TEST_F(PrepareRows, AnyNumberOfWorkersWritesTheSameBytes) {
  std::string rows, list;
  for (int i = 0; i < 5000; ++i) {
    rows += fmt::format("{{\"prompt\": \"{}\", \"completion\": \"{}\"}}\n", i, i * 7919);
  }
  data_.train_file = write("train.jsonl", rows).string();
  std::string expected;
  for (const int64_t workers : {1, 2, 5}) {
    data_.preprocessing_num_workers = workers;
    data_.overwrite_cache = true;
    const auto prepared = prepare_rows(data_, byte_encoder(), Split::kTrain);
    EXPECT_FALSE(prepared.was_reused);
    const auto bytes = read_file(prepared.prepared_file);
    if (expected.empty()) expected = bytes;
    EXPECT_TRUE(bytes == expected) << workers << " workers";
  }
}

TEST_F(PrepareRows, BadRowsAreNamedOrCounted) {
  const std::string rows =
      "{\"text\": \"A\"}\n{\"question\": 1}\n{\"text\": \"refuse me\"}\n"
      "{\"messages\": []}\n{\"text\": \"B\"}\n";
  const auto message = refusal<IoError>([&] { prepare(rows); });
  EXPECT_PRED2(contains, message, "train.jsonl:2: expected \"messages\"");
  EXPECT_PRED2(contains, message, "the row has \"question\"; rename them to one of these");
  EXPECT_PRED2(contains, message, " (bad_lines=skip leaves such rows out)");
  const auto all = refusal<IoError>([&] { prepare("{\"question\": 1}\n{\"question\": 2}\n"); });
  EXPECT_PRED2(contains, all, "train.jsonl:1: expected");
  EXPECT_FALSE(contains(all, "bad_lines")) << "nothing would be left";
  data_.bad_lines = config::BadLines::kSkip;
  const auto prepared = prepare(rows);
  EXPECT_EQ(prepared.rows.count(), 2);
  EXPECT_EQ(prepared.bad_rows, 3u);
  EXPECT_PRED2(contains, prepared.place_of(1), "train.jsonl:5");
  data_.bad_lines = config::BadLines::kStop;
  EXPECT_PRED2(contains, refusal<IoError>([&] { prepare(rows); }), "train.jsonl:2")
      << "a run that stops at bad rows does not take what another made without them";
}

TEST_F(PrepareRows, HugeRowsAreRefusedByPlace) {
  const auto message = refusal<IoError>([&] {
    prepare("{\"text\": \"A\"}\n{\"text\": \"" + std::string(100'000'000, 'x') + "\"}\n");
  });
  EXPECT_PRED2(contains, message, "train.jsonl:2: the row is longer than 64 MiB");
}

TEST_F(PrepareRows, ListsOfJsonAndSeveralFiles) {
  const auto list = write("a.json", "[{\"text\": \"A\"},\n {\"text\": \"B\"}]");
  const auto lines = write("b.jsonl", "{\"text\": \"C\"}\n");
  data_.train_file = list.string() + "," + lines.string();
  const auto prepared = prepare_rows(data_, byte_encoder(), Split::kTrain);
  ASSERT_EQ(prepared.rows.count(), 3);
  EXPECT_EQ(masked(prepared, 1), (RowIds{-66, 256}));
  EXPECT_PRED2(contains, prepared.place_of(1), "a.json:2");
  EXPECT_PRED2(contains, prepared.place_of(2), "b.jsonl:1");
  data_.train_file = write("a.txt", "A").string();
  EXPECT_PRED2(contains,
               refusal<UserError>([&] { prepare_rows(data_, byte_encoder(), Split::kTrain); }),
               "its name must end in .jsonl (one row per line) or .json (a list of rows)");
  data_.train_file = write("empty.jsonl", "\n").string();
  EXPECT_PRED2(contains,
               refusal<IoError>([&] { prepare_rows(data_, byte_encoder(), Split::kTrain); }),
               "empty.jsonl, holds no row");
  data_.train_file = "";
  EXPECT_PRED2(contains,
               refusal<UserError>([&] { prepare_rows(data_, byte_encoder(), Split::kTrain); }),
               "nothing to train on");
}

TEST_F(PrepareRows, DamagedFilesAreMadeAnew) {
  const auto first = prepare("{\"text\": \"A\"}\n{\"text\": \"BC\"}\n");
  const auto bytes = read_file(first.prepared_file);
  for (size_t at = 0; at < bytes.size(); ++at) {
    auto damaged = bytes;
    damaged[at] ^= 0x10;
    write_file_atomically(first.prepared_file, damaged);
    EXPECT_FALSE(prepare_rows(data_, byte_encoder(), Split::kTrain).was_reused) << at;
    EXPECT_TRUE(read_file(first.prepared_file) == bytes) << at;
  }
  write_file_atomically(first.prepared_file, bytes.substr(0, bytes.size() - kRowEntryBytes));
  EXPECT_FALSE(prepare_rows(data_, byte_encoder(), Split::kTrain).was_reused);
}

// A file with a right digest and a wrong index: nothing outside of the file is read.
TEST_F(PrepareRows, AnIndexThatLeavesItsFileIsRefused) {
  const auto path = folder_ / "a.rows";
  const std::string key(32, 'k');
  for (const auto& entry :
       {RowEntry{.offset = 1 << 20, .length = 1}, RowEntry{.offset = 128, .length = UINT32_MAX},
        RowEntry{.offset = UINT64_MAX - 7, .length = 9}, RowEntry{.offset = 129, .length = 1},
        RowEntry{.offset = 128, .length = 1, .num_targets = 2}}) {
    PreparedFileWriter writer(path);
    const std::vector<std::byte> ids(8);
    writer.append(ids);
    TokenCacheHeader header{.kind = PreparedKind::kRows,
                            .documents = 1,
                            .index_offset = writer.offset(),
                            .key = key,
                            .digest = {}};
    writer.append(std::as_bytes(std::span(&entry, 1)));
    header = writer.commit(header);
    EXPECT_EQ(read_token_cache_header(path, key, PreparedKind::kRows), header);
    EXPECT_PRED2(contains, refusal<IoError>([&] { RowArray(path, header); }), "damaged");
  }
  EXPECT_THROW(read_token_cache_header(path, key, PreparedKind::kTokens), IoError);
}

TEST_F(PrepareRows, PairsAreStoredAsTwoAnswers) {
  const auto pairs = pair_of(2, "AB", "C", ", \"margin\": 0.5") + pair_of(2, "pA", "pB");
  const auto first = prepare(pairs, RowKind::kPairs);
  EXPECT_EQ(first.prepared_file.filename(), first.digest + ".pairs");
  EXPECT_EQ(first.count(), 2);
  ASSERT_EQ(first.rows.count(), 4);
  EXPECT_EQ(masked(first, 0), (RowIds{-'p', -'p', 'A', 'B', 256}));
  EXPECT_EQ(masked(first, 1), (RowIds{-'p', -'p', 'C', 256}));
  EXPECT_EQ(shared_ids(first.entry(0)), 2);
  EXPECT_EQ(margin_of(first.entry(0, 1)), 0.5);
  EXPECT_EQ(shared_ids(first.entry(1)), 2) << "not what is trained on";
  EXPECT_EQ(margin_of(first.entry(1, 1)), std::nullopt);
  EXPECT_PRED2(contains, first.place_of(1), "train.jsonl:2");
  EXPECT_TRUE(prepare(pairs, RowKind::kPairs).was_reused);
}

TEST_F(PrepareRows, AnswersJudgedAloneKeepTheirLabelAndPrompt) {
  const auto rows = judged("ab", "C", true) + judged("", "C", false);
  const auto first = prepare(rows, RowKind::kFeedback);
  EXPECT_EQ(first.prepared_file.filename(), first.digest + ".feedback");
  ASSERT_EQ(first.count(), 2);
  EXPECT_EQ(masked(first, 0), (RowIds{-'a', -'b', 'C', 256}));
  EXPECT_EQ(prompt_ids(first.entry(0)), 2);
  EXPECT_TRUE(is_desirable(first.entry(0)));
  EXPECT_EQ(prompt_ids(first.entry(1)), 1) << "nothing predicts the first id";
  EXPECT_FALSE(is_desirable(first.entry(1)));
  EXPECT_PRED2(contains, refusal<IoError>([&] { prepare(rows); }), "which stage=kto trains on");
}

TEST_F(PrepareRows, RowsOfAnotherKindNameTheirStage) {
  const auto pair = pair_of(2, "A", "B"), alone = judged("a", "C", true), row = row_of(2, 2);
  const auto refused = [&](const std::string& rows, RowKind kind) {
    return refusal<IoError>([&] { prepare(rows, kind); });
  };
  EXPECT_PRED2(contains, refused(pair, RowKind::kRows), "train.jsonl:1: the row holds preferences");
  EXPECT_PRED2(contains, refused(pair, RowKind::kRows),
               "stage=dpo or stage=rm trains on such rows");
  EXPECT_PRED2(contains, refused(pair_of(2, "A", ""), RowKind::kRows), "stage=kto trains on such");
  EXPECT_PRED2(contains, refused(pair, RowKind::kFeedback), "stage=dpo or stage=rm");
  EXPECT_PRED2(contains, refused(alone, RowKind::kPairs), "stage=kto");
  EXPECT_PRED2(contains, refused(row, RowKind::kPairs), "stage=sft");
  EXPECT_PRED2(contains, refused(row, RowKind::kFeedback), "stage=sft");
  EXPECT_FALSE(contains(refused(alone, RowKind::kPairs), "bad_lines")) << "nothing would be left";
}

TEST_F(PrepareRows, DamagedPairsAndFeedbackAreMadeAnew) {
  for (const auto kind : {RowKind::kPairs, RowKind::kFeedback}) {
    const auto rows = kind == RowKind::kPairs ? pair_of(1, "A", "B") : judged("a", "B", true);
    const auto first = prepare(rows, kind);
    const auto bytes = read_file(first.prepared_file);
    for (size_t at = 0; at < bytes.size(); ++at) {
      auto damaged = bytes;
      damaged[at] ^= 0x10;
      write_file_atomically(first.prepared_file, damaged);
      EXPECT_FALSE(prepare_rows(data_, byte_encoder(kind), Split::kTrain).was_reused) << at;
      EXPECT_TRUE(read_file(first.prepared_file) == bytes) << at;
    }
  }
}

// As AnIndexThatLeavesItsFileIsRefused, for what the other kinds keep beside a row.
TEST_F(PrepareRows, NotesThatCannotBeTrueAreRefused) {
  const auto path = folder_ / "a.pairs";
  const auto entry = [](uint32_t targets, uint32_t note) {
    return RowEntry{.offset = 128, .length = 2, .num_targets = targets, .note = note};
  };
  const uint32_t nan = 0x7FC00000, infinite = 0x7F800000, half = 0x3F000000;
  const struct {
    PreparedKind kind;
    std::vector<RowEntry> index;
    const char* why;
  } cases[] = {
      {PreparedKind::kPairs, {entry(1, 2), entry(1, nan)}, ""},
      {PreparedKind::kPairs, {entry(1, 1), entry(1, half)}, ""},
      {PreparedKind::kPairs, {entry(1, 3), entry(1, nan)}, "damaged"},
      {PreparedKind::kPairs, {entry(1, 1), entry(1, infinite)}, "damaged"},
      {PreparedKind::kPairs, {entry(1, 1)}, "half"},
      {PreparedKind::kFeedback, {entry(1, 1)}, ""},
      {PreparedKind::kFeedback, {entry(1, 0x80000001)}, ""},
      {PreparedKind::kFeedback, {entry(0, 2)}, ""},
      {PreparedKind::kFeedback, {entry(1, 0)}, "damaged"},
      {PreparedKind::kFeedback, {entry(1, 2)}, "damaged"},
      {PreparedKind::kFeedback, {entry(1, 0xFFFFFFFF)}, "damaged"},
  };
  for (const auto& [kind, index, why] : cases) {
    PreparedFileWriter writer(path);
    writer.append(std::vector<std::byte>(8));
    TokenCacheHeader header{.kind = kind,
                            .documents = index.size(),
                            .index_offset = writer.offset(),
                            .key = std::string(32, 'k'),
                            .digest = {}};
    writer.append(std::as_bytes(std::span(index)));
    header = writer.commit(header);
    EXPECT_EQ(read_token_cache_header(path, header.key, kind), header);
    const auto said = refusal<IoError>([&] { RowArray(path, header); });
    EXPECT_EQ(said.empty(), *why == 0) << said;
    EXPECT_PRED2(contains, said, why);
    EXPECT_THROW(read_token_cache_header(path, header.key, PreparedKind::kRows), IoError);
  }
}

TEST_F(PrepareRows, SeveralProcessesPrepareOnce) {
  std::string rows;
  for (int i = 0; i < 20000; ++i) rows += row_of(5, 20);
  data_.train_file = write("train.jsonl", rows).string();
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto prepared = prepare_rows(data_, byte_encoder(), Split::kTrain);
      ::_exit(prepared.rows.count() != 20000 ? 2 : prepared.was_reused ? 1 : 0);
    }
    children.push_back(child);
  }
  int made = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_LE(WEXITSTATUS(status), 1);
    made += WEXITSTATUS(status) == 0;
  }
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace skein::data
